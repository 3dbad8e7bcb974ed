"""Combiners and comparators that lowering rules hand on: functions of scalars, inlined on scalars or vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mlir.ir as ir

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.kernels import COMBINER, combiner_reference
from stablexla.lowering.support.operations import captured, clone_with, defining, walk
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import outside_constant, replay
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel

_SCALAR = ("arith", "math", "complex")


@dataclass(frozen=True)
class ElementCombiner:
    """The function of a kernel's combiner.

    Attributes:
        arguments: its arguments that are elements, in storage form.
        uniforms: its other arguments, with the numbers of the kernel's inputs that they are.
        results: its results.
        operations: its operations, in order.
    """

    arguments: tuple[ir.Value, ...]
    uniforms: tuple[tuple[ir.Value, int], ...]
    results: tuple[ir.Value, ...]
    operations: tuple[ir.Operation, ...]

    @staticmethod
    def of(kernel: Kernel) -> ElementCombiner:
        """Return the combiner that a kernel names.

        Raises:
            CompileError: it names none, or one that is not in the module.
        """
        reference = combiner_reference(kernel.func)
        table = ir.SymbolTable(kernel.func.operation.parent.operation)
        if reference is None or ir.FlatSymbolRefAttr(reference.function).value not in table:
            raise CompileError(f"the kernel @{kernel.name} has no {COMBINER} that is a function of its module")
        block = table[ir.FlatSymbolRefAttr(reference.function).value].regions[0].blocks[0]
        *operations, end = (view.operation for view in block.operations)
        count = len(block.arguments) - len(reference.uniforms)
        uniforms = zip(list(block.arguments)[count:], reference.uniforms, strict=True)
        return ElementCombiner(tuple(block.arguments)[:count], tuple(uniforms), tuple(end.operands), tuple(operations))

    @property
    def is_scalar(self) -> bool:
        """Whether it is arithmetic and branches on numbers."""
        inside = [inner for op in self.operations for inner in walk(op)]
        return all(op.name in ("scf.if", "scf.yield") or op.name.split(".")[0] in _SCALAR for op in inside)

    @property
    def fits_lanes(self) -> bool:
        """Whether it can be inlined on vectors: elementwise operations on integers and reals."""
        values = [*self.arguments, *(value for value, _ in self.uniforms)]
        values += [result for op in self.operations for result in op.results]
        return all(op.name.split(".")[0] in ("arith", "math") for op in self.operations) and all(
            isinstance(value.type, ir.IntegerType | ir.FloatType) for value in values
        )

    def elements_read(self, values: Iterable[ir.Value] | None = None) -> set[int]:
        """Return the numbers of the arguments that some of its values depend on; without `values`, its results."""
        waiting = list(self.results if values is None else values)
        seen: set[ir.Value] = set()
        while waiting:
            value = waiting.pop()
            if value not in seen:
                seen.add(value)
                maker = defining(value)
                waiting += [] if maker is None else captured(maker)
        return {number for number, argument in enumerate(self.arguments) if argument in seen}

    def inline(self, elements: Sequence[Value | None], inputs: Sequence[Value]) -> list[Value]:
        """Emit it on elements, or vectors of them; `inputs` are the kernel's. None stands for what it does not read."""
        lanes = max(value.lanes for value in elements if value is not None)
        if not lanes:
            return self.parts(self.results, elements, inputs)
        made = self._known(elements, inputs, lanes)
        for op in self.operations:
            if op.name == "arith.constant":
                made[op.results[0]] = cg.splat(outside_constant(op.results[0]), lanes)
            elif all(operand in made for operand in op.operands):
                made.update(zip(op.results, replay(op, [made[v] for v in op.operands], lanes), strict=True))
        return [made[value] for value in self.results]

    def parts(
        self, values: Sequence[ir.Value], elements: Sequence[Value | None], inputs: Sequence[Value]
    ) -> list[Value]:
        """Emit some of its values on elements, and what they depend on."""
        known = {old: new.ssa for old, new in self._known(elements, inputs, 0).items()}
        return [Value(_clone(value, known)) for value in values]

    def _known(self, elements: Sequence[Value | None], inputs: Sequence[Value], lanes: int) -> dict[ir.Value, Value]:
        known = {value: cg.splat(inputs[number], lanes) for value, number in self.uniforms}
        pairs = zip(self.arguments, elements, strict=True)
        return known | {argument: element for argument, element in pairs if element is not None}


def _clone(value: ir.Value, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """Clone the operations that compute a value, operands before users, and note the clones' results."""
    waiting = [value]
    while waiting:
        now = waiting[-1]
        if now in known:
            waiting.pop()
            continue
        maker = defining(now)
        assert maker is not None, "a value that nothing stands for"
        missing = [v for v in captured(maker) if v not in known]
        if missing:
            waiting += missing
            continue
        clone_with(maker, known)
    return known[value]
