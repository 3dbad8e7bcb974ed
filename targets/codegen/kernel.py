"""A kernel as its emitter sees it, and the contract of what an emitter returns.

A kernel is a private function on tensors (stage `kernels`). Its emitter writes a second function beside it, on flat
memrefs, that computes the work items [lo, hi) of a fixed number of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TypeVar

import mlir.ir as ir
from mlir.dialects import func

from stablexla.dialects.contexts import kept_with_contexts
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.configs import read_config
from stablexla.lowering.support.kernels import CONFIG, KIND
from stablexla.lowering.support.types import parsed_type
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Packing, Phase
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import Refusal
from stablexla.targets.codegen.schedule import Schedule

T = TypeVar("T")
SCHEDULE = "stablexla.schedule"
"""Attribute of an emitted function: the steps of its schedule, for readers of the stage "buffers"."""
ROLLED = "stablexla.rolled"
"""Attribute of an emitted function whose loops LLVM is not to unroll, see `targets/llvm/no_unroll.py`."""
UNBOUNDED = "stablexla.unbounded"
"""Attribute of a function on buffers with loops that the program need not end, see `targets/llvm/check_stops.py`."""
ELSEWHERE = "stablexla.elsewhere"
"""Attribute of a kernel's declaration whose code is made apart from the module, see `targets/llvm/call_list.py`."""


@dataclass(frozen=True)
class Emitted:
    """What the caller of an emitted kernel must know.

    Attributes:
        items: number of work items; a call computes those of [lo, hi).
        grain: the smallest number of items worth another thread; chunks are multiples of it.
        scratch: element type (MLIR spelling) and number of elements of each scratch buffer.
        in_place: pairs (result, input) that may share one buffer.
        updates: pairs (result, input): the result's buffer must hold the input's elements before the call, and the
            kernel only changes some of them.
        phases: run one after another; empty means the one function `impl_name`.
        packs: phases that do nothing but to make a scratch of an input, which no other phase reads; no other phase
            writes the scratch.
    """

    items: int
    grain: int
    scratch: tuple[tuple[str, int], ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    phases: tuple[Phase, ...] = ()
    packs: tuple[Packing, ...] = ()


class Kernel:
    """The tensor function of a kernel, with its operations, inputs and results.

    Attributes:
        func: the function on tensors, `func.func`.
        name: the function's name, as "loop_0"; emitted functions are named after it.
        kind: what lowering says that it is, as "loop", "contraction" or "scan"; an emitter is asked for its kinds.
        ops: the operations of its body in order, without the terminator.
        inputs: the block's arguments: tensors, and scalars for arrays of rank 0.
        results: the values that it returns.
        constants: inputs for which every call passes a constant that the program holds itself.
        lasting: inputs that are packed once for many calls: constants, and what loops around the calls leave alone.
        shared_symbols: names of the functions that kernels of the module share, by what they are made from.
        emitted: the functions that were made for it, shared ones among them.
        refusal: why no emitter took it.
        uses_library: whether shared functions may be declared, and their code come from the library.
        schedule: how its loops are emitted, where an emitter says it before it declares a function.
        digest: of all that its code depends on, where that is kept for other programs (`targets/llvm/kept_kernels.py`).
    """

    def __init__(
        self,
        function: func.FuncOp,
        constants: frozenset[int] = frozenset(),
        shared_symbols: dict[Hashable, str] | None = None,
        lasting: frozenset[int] = frozenset(),
    ) -> None:
        self.func = function
        self.constants, self.lasting = constants, lasting
        self.shared_symbols = {} if shared_symbols is None else shared_symbols
        self.emitted: list[ir.Operation] = []
        self.refusal: Refusal | None = None
        self.uses_library = False
        self.schedule: Schedule | None = None
        self.digest: str | None = None
        self.name: str = function.name.value
        self.kind: str = ir.StringAttr(function.attributes[KIND]).value
        block = function.regions[0].blocks[0]
        *ops, terminator = (op.operation for op in block.operations)
        self.ops: list[ir.Operation] = ops
        self.inputs: list[ir.Value] = list(block.arguments)
        self.results: list[ir.Value] = list(terminator.operands)

    def config(self, cls: type[T]) -> T:
        """Read the configuration set by the lowering rule that made the kernel, which is of this class.

        Raises:
            CompileError: there is none, or it lacks a field or has an unknown one.
        """
        attributes = self.func.attributes
        if CONFIG not in attributes:
            raise CompileError(f"the kernel @{self.name} has no {CONFIG}, which is a {cls.__name__}")
        return read_config(cls, attributes[CONFIG], f"{CONFIG} of @{self.name}")

    @property
    def impl_name(self) -> str:
        """Name of the emitted function; that of one whose code is kept is the same in all programs."""
        return (self.name if self.digest is None else f"kept_{self.digest[:20]}") + "_impl"

    def declare(
        self, scratch: Sequence[tuple[str, int]] = (), name: str | None = None
    ) -> tuple[func.FuncOp, KernelArguments]:
        """Declare the emitted function before the tensor function, with an entry block; its body is the emitter's.

        The block still needs its `func.return`.
        """
        with self.func.context, self.func.location:
            inputs = [flat_type(v.type) for v in self.inputs]
            results = [flat_type(v.type) for v in self.results]
            extra = [ir.MemRefType.get([n], parsed_type(t)) for t, n in scratch]
            index = ir.IndexType.get()
            types = [*inputs, *results, *extra, index, index]
            with ir.InsertionPoint(self.func):
                made = func.FuncOp(name or self.impl_name, ir.FunctionType.get(types, []), visibility="private")
            made.attributes["no_inline"] = ir.UnitAttr.get()
            if self.schedule is not None:
                made.attributes[SCHEDULE] = ir.StringAttr.get(str(self.schedule))
            self.emitted.append(made.operation)
            values = [Value(v) for v in made.add_entry_block().arguments]
        n, m = len(inputs), len(results)
        return made, KernelArguments(
            inputs=values[:n],
            results=values[n : n + m],
            scratch=values[n + m : -2],
            lo=values[-2],
            hi=values[-1],
        )

    @contextmanager
    def phase(
        self,
        target: CpuTarget,
        scratch: Sequence[tuple[str, int]] = (),
        name: str | None = None,
        *,
        unroll: bool = True,
    ) -> Iterator[KernelArguments]:
        """Declare a function of the kernel and emit its body: `with kernel.phase(target) as arguments: ...`.

        Args:
            name: of the function; default: `impl_name`, that of the last phase.
            unroll: False keeps LLVM from unrolling its loops.
        """
        function, arguments = self.declare(scratch, name)
        if not unroll:
            function.attributes[ROLLED] = ir.UnitAttr.get(function.context)
        with cg.emitting(function, target):
            yield arguments


@dataclass(frozen=True)
class KernelArguments:
    """The arguments of an emitted function by their roles.

    Attributes:
        inputs, results: flat buffers, in the order of the kernel's; a scalar input is a scalar.
        scratch: flat buffers for `Emitted.scratch`, shared by the work items of a call.
        lo, hi: the call's work items, [lo, hi).
    """

    inputs: list[Value]
    results: list[Value]
    scratch: list[Value]
    lo: Value
    hi: Value

    @contextmanager
    def items(self, count: int = 0) -> Iterator[Value]:
        """Emit a loop over the call's work items; where the kernel's `count` is known to be 1, there is none."""
        with cg.loop(0, 1) if count == 1 else cg.loop(self.lo, self.hi) as item:
            yield item.iv

    @contextmanager
    def split_items(self, extents: Sequence[int]) -> Iterator[list[Value]]:
        """Emit a loop over the call's work items, given as their coordinates in an array of `extents`."""
        with self.items(prod(extents)) as item:
            yield cg.split_index(item, extents)


def flat_type(type_: ir.Type) -> ir.Type:
    """Return the flat memref type that holds a tensor; a scalar keeps its type."""
    if not isinstance(type_, ir.RankedTensorType):
        return type_
    known = kept_with_contexts("flat types")
    found: ir.Type | None = known.get(type_)
    if found is None:
        found = known[type_] = ir.MemRefType.get([prod(type_.shape)], type_.element_type)
    return found


__all__ = ["KIND", "CpuTarget", "Emitted", "Kernel", "KernelArguments", "flat_type"]
