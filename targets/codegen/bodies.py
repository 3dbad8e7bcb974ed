"""Bodies of linalg operations: which can be inlined, on scalars or vectors, what they cost, and their inlining."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isnan

import mlir.ir as ir
from mlir.dialects import arith, vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import constant_attribute, terminator_of, walk
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.excess_precision import fused, unrounded
from stablexla.targets.codegen.halves import on_halves
from stablexla.targets.codegen.nearest import to_nearest

_WEIGHTS = {
    "arith.constant": 0,
    "linalg.index": 0,
    "linalg.yield": 0,
    "arith.divf": 4,
    "arith.divsi": 30,
    "arith.divui": 30,
    "arith.extf": 2,
    "arith.maximumf": 4,
    "arith.minimumf": 4,
    "arith.remf": 60,
    "arith.remsi": 30,
    "arith.remui": 30,
    "arith.truncf": 4,
    "math.absf": 1,
    "math.ceil": 1,
    "math.copysign": 2,
    "math.floor": 1,
    "math.fma": 1,
    "math.roundeven": 1,
    "math.sqrt": 5,
    "math.trunc": 1,
}


def body_cost(operations: Iterable[ir.Operation]) -> int:
    """Estimate how many vector instructions the operations of a body take."""
    names = [operation.name for operation in operations]
    return sum(_WEIGHTS.get(name, 20 if name.startswith("math.") else 1) for name in names)


def computed_types(operations: Iterable[ir.Operation]) -> Iterator[ir.Type]:
    """Yield the types of what the operations of a body compute, one for each value, but for indices and constants."""
    for operation in operations:
        if operation.name not in ("arith.index_cast", "linalg.index", "arith.constant"):
            yield from (v.type for v in operation.results if not isinstance(v.type, ir.IndexType))


def replay(operation: ir.Operation, operands: Sequence[Value], lanes: int) -> list[Value]:
    """Clone an elementwise scalar operation onto other operands, vectors of `lanes` (0: scalars)."""
    if lanes and operation.name in _ON_PARTS and (made := _on_parts(operation, operands, lanes)) is not None:
        return [made]
    if (value := unrounded(operation, operands, lanes)) is not None:
        return [value]
    if (value := on_halves(operation, operands, lanes)) is not None:
        return [value]
    if operation.name == "arith.fptosi" and (value := to_nearest(operation, operands[0], lanes)) is not None:
        return [value]
    attributes = dict(operation.attributes.items())
    made = ir.Operation.create(
        operation.name,
        results=[cg.vector_of(lanes, result.type) for result in operation.results],
        operands=[operand.ssa for operand in operands],
        attributes=attributes | fused(operation),
    )
    return [Value(result) for result in made.results]


# Operations that lanes have on complex numbers.
_ON_PARTS = ("arith.select", "complex.constant", "complex.create", "complex.im", "complex.re")


def _on_parts(operation: ir.Operation, operands: Sequence[Value], lanes: int) -> Value | None:
    """Emit an operation on complex numbers in lanes; None if it is on others."""
    match operation.name, operands:
        case "complex.create", (re, im):
            return cg.ComplexVector(re, im)
        case "complex.re", (cg.ComplexVector() as value,):
            return value.re
        case "complex.im", (cg.ComplexVector() as value,):
            return value.im
        case "complex.constant", ():
            return cg.splat(replay(operation, [], 0)[0], lanes)
        case "arith.select", (condition, cg.ComplexVector() as yes, cg.ComplexVector() as no):
            return cg.ComplexVector(cg.select(condition, yes.re, no.re), cg.select(condition, yes.im, no.im))
    return None


def outside_constant(operand: ir.Value) -> Value:
    """Copy a scalar constant of the tensor function into the function being emitted."""
    attribute = constant_attribute(operand)
    if attribute is None:
        raise ValueError("a body uses a value of the tensor function that is no constant")
    return constant_of(attribute, operand.type)


def constant_of(attribute: ir.Attribute, type_: ir.Type) -> Value:
    """Return a scalar constant, by its attribute."""
    if isinstance(attribute, ir.FloatAttr) and not isnan(attribute.value):
        return cg.constant(attribute.value, type_)
    if isinstance(attribute, ir.BoolAttr | ir.IntegerAttr):
        return cg.constant(int(attribute.value), type_)
    return Value(arith.ConstantOp(type_, attribute).result)  # a NaN's payload, complex


def can_clone(
    block: ir.Block, lanes: bool = True, indices: bool = False, scalars: bool = False, parts: bool = False
) -> bool:
    """Return whether a body can be inlined: constants, arith, math, on scalars complex.

    Args:
        block: the body.
        lanes: it is inlined on vectors.
        indices: `linalg.index` is known.
        scalars: the kernel's scalar arguments are.
        parts: the parts of complex numbers in lanes are, and so are branches: `VectorBody` inlines it.
    """
    allowed = {"arith", "math"} if lanes else {"arith", "math", "complex"}
    inside = set(block.arguments)

    def is_known(operand: ir.Value) -> bool:
        is_argument = scalars and isinstance(operand.owner, ir.Block)
        return operand in inside or constant_attribute(operand) is not None or is_argument

    def fits(operation: ir.Operation) -> bool:
        name = operation.name
        if not all(is_known(operand) for operand in operation.operands):
            return False
        if name in ("linalg.yield", "scf.yield"):
            return True
        if name == "scf.if" and parts and len(operation.results):
            return all(fits_all(region.blocks[0]) for region in operation.regions)
        if parts and name in _ON_PARTS:
            return True
        if lanes and any(isinstance(result.type, ir.ComplexType) for result in operation.results):
            return False
        return indices if name == "linalg.index" else name.split(".")[0] in allowed

    def fits_all(block: ir.Block) -> bool:
        for view in block.operations:
            if not fits(view.operation):
                return False
            inside.update(view.operation.results)
        return True

    return fits_all(block)


@dataclass(frozen=True)
class _Counter:
    """An induction variable in 32 bits, widened only at uses that need it: x86 converts 64 bits to floats slowly."""

    value: Value


def _unsupported(_: int) -> Value:
    raise ValueError("a body uses an index, or a value of the tensor function that is no constant")


class VectorBody:
    """Inline a linalg body, or parts of it, on vectors of `lanes` (0: scalars). `can_clone` tells which bodies.

    Args:
        block: the body.
        lanes: number of lanes; scalars among the operands are splat.
        position: returns the value of `linalg.index d`, an `i32` or `index` of the right lanes.
        argument: returns the kernel's scalar argument of a number.
        operations: those of the block, where they are known.
    """

    def __init__(
        self,
        block: ir.Block,
        lanes: int,
        position: Callable[[int], Value] = _unsupported,
        argument: Callable[[int], Value] = _unsupported,
        operations: Sequence[ir.Operation] = (),
    ) -> None:
        self._block, self.lanes = block, lanes
        self._operations = operations or [view.operation for view in block.operations]
        self._position, self._argument = position, argument
        self._values: dict[ir.Value, Value | _Counter] = {}

    def on(self, arguments: Sequence[Value]) -> list[Value]:
        """Compute the values yielded, with `arguments` for the block's first ones; the body uses no others."""
        return self.run(dict(zip(self._block.arguments, arguments, strict=False)))

    def run(self, given: Mapping[ir.Value, Value], wanted: Sequence[ir.Value] | None = None) -> list[Value]:
        """Compute the values `wanted` (default: those yielded), with `given` for arguments and, maybe, inner values."""
        if wanted is None:
            wanted = list(terminator_of(self._block).operands)
        for value, known_value in given.items():
            self._values[value] = cg.splat(known_value, self.lanes)
        for operation in self._needed(wanted):
            self._replay(operation)
        return [self._get(v) for v in wanted]

    def _needed(self, wanted: Sequence[ir.Value]) -> list[ir.Operation]:
        """Return the operations of the block behind the wanted values that are not known, in order."""
        missing = {v for v in wanted if v not in self._values}
        found: list[ir.Operation] = []
        for operation in reversed(self._operations):
            if any(result in missing for result in operation.results):
                found.append(operation)
                missing.update(v for v in _read_by(operation) if v not in self._values)
        return found[::-1]

    def _replay(self, operation: ir.Operation) -> None:
        results = operation.results
        if len(results) == 1 and results[0] in self._values:
            return
        if operation.name == "linalg.index":
            self._values[results[0]] = self._index(ir.IntegerAttr(operation.attributes["dim"]).value)
            return
        if operation.name == "arith.constant":
            self._values[results[0]] = self._constant(operation)
            return
        if operation.name == "scf.if":
            made = self._branch(operation)
            self._values.update(zip(results, made, strict=True))
            return
        narrow = self._values.get(operation.operands[0]) if len(operation.operands) else None
        if isinstance(narrow, _Counter) and self._convert(operation, narrow):
            return
        made = replay(operation, [self._get(v) for v in operation.operands], self.lanes)
        self._values.update(zip(results, made, strict=True))

    def _branch(self, operation: ir.Operation) -> list[Value]:
        """Emit a branch; in lanes, each side is entered if any of them takes it, and each has its own side's values.

        A side is emitted once, so that branches in branches are as long as they are in the program.
        """
        condition = self._get(operation.operands[0])
        if not self.lanes:
            branch = cg.branch(condition, [result.type for result in operation.results])
            with branch.then:
                branch.yields(*self._side(operation, 0))
            with branch.otherwise:
                branch.yields(*self._side(operation, 1))
            return branch.results
        other = condition ^ cg.splat(cg.constant(1, condition.element), self.lanes)
        yes, no = (self._side_in_lanes(operation, number, taken) for number, taken in enumerate((condition, other)))
        return [cg.select(condition, a, b) for a, b in zip(yes, no, strict=True)]

    def _side_in_lanes(self, operation: ir.Operation, number: int, taken: Value) -> list[Value]:
        """Emit a side of a branch that is entered if any lane takes it; else its values are not used."""
        types = [cg.vector_of(self.lanes, result.type) for result in operation.results]
        branch = cg.branch(cg.reduce(taken, vector.CombiningKind.OR), types)
        with branch.then:
            branch.yields(*self._side(operation, number))
        with branch.otherwise:
            branch.yields(*(cg.splat(cg.constant(0, result.type), self.lanes) for result in operation.results))
        return branch.results

    def _side(self, operation: ir.Operation, number: int) -> list[Value]:
        """Emit the operations of a side of a branch; values that are made in it are not known outside."""
        before, block = dict(self._values), operation.regions[number].blocks[0]
        for view in list(block.operations)[:-1]:
            self._replay(view.operation)
        results = [self._get(v) for v in terminator_of(block).operands]
        self._values = before
        return results

    def _index(self, dimension: int) -> Value | _Counter:
        position = cg.splat(self._position(dimension), self.lanes)
        return _Counter(position) if isinstance(position.element, ir.IntegerType) else position

    def _convert(self, operation: ir.Operation, counter: _Counter) -> bool:
        """Emit a conversion of a counter; return False if the operation is none."""
        result = operation.results[0]
        if operation.name == "arith.index_cast":
            width = cg.bits_of(result.type)
            self._values[result] = counter if width > 32 else _resized(counter.value, result.type)
            return True
        if operation.name in ("arith.sitofp", "arith.uitofp"):
            made = arith.sitofp(cg.vector_of(self.lanes, result.type), counter.value.ssa)
            self._values[result] = Value(made)
            return True
        return False

    def _get(self, value: ir.Value) -> Value:
        found = self._values.get(value)
        if isinstance(found, _Counter):
            wide = value.type if cg.bits_of(value.type) == 64 else ir.IntegerType.get_signless(64)
            if isinstance(wide, ir.IndexType):
                return cg.cast_index(found.value, cg.vector_of(self.lanes, wide))
            return _resized(found.value, wide)
        if found is None:
            found = self._values[value] = cg.splat(self._outside(value), self.lanes)
        return found

    def _outside(self, value: ir.Value) -> Value:
        if isinstance(value.owner, ir.Block):
            return self._argument(value.arg_number)
        return outside_constant(value)

    def _constant(self, operation: ir.Operation) -> Value:
        return cg.splat(constant_of(operation.attributes["value"], operation.results[0].type), self.lanes)


def _read_by(operation: ir.Operation) -> list[ir.Value]:
    """Return the operands of an operation, and those of the operations in it."""
    return [value for inner in walk(operation) for value in inner.operands]


def _resized(value: Value, element: ir.Type) -> Value:
    """Resize a signed integer."""
    have, want = cg.bits_of(value.type), cg.bits_of(element)
    type_ = cg.vector_of(value.lanes, element)
    if have == want:
        return value
    return Value(arith.extsi(type_, value.ssa) if want > have else arith.trunci(type_, value.ssa))
