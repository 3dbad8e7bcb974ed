"""Pattern match of a contraction kernel: loops as strides, operand conversions, and the elementwise epilogue.

Reads the tensor function only and emits nothing; the choice of code for a `Contraction` is made elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.math import EXPANSIONS
from stablexla.lowering.support.operations import constant_attribute, defining
from stablexla.targets.codegen.bodies import can_clone
from stablexla.targets.codegen.calls import Packing
from stablexla.targets.codegen.conversion import Conversion, steps_of
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.refusals import COMPLEX, CONTRACTED, refuse
from stablexla.targets.grouping.factors import Factor, factor_of
from stablexla.targets.grouping.loops import inputs_of, is_generic, loops_of, map_strides, reads_outputs, strides_of
from stablexla.targets.grouping.matchers import body_names, factor_conversions, starts_at_zero

# Operations that an elementary function expands to, roughly.
EXPANDED = 20
LONG_FUNCTIONS = frozenset(["math.cos", "math.sin", "math.tan"])
"""Elementary functions of some 200 operations, for any argument: no copies of them for each of a tile's registers."""


@dataclass(frozen=True)
class ContractionAxis:
    """One loop: its extent, and its strides, in elements, in lhs (a), rhs (b) and result (c).

    `dims` lists the dimensions of the result (number, extent) that it runs over, outermost first.
    """

    extent: int = 1
    a: int = 0
    b: int = 0
    c: int = 0
    dims: tuple[tuple[int, int], ...] = ()

    def swapped(self) -> ContractionAxis:
        """Return the same loop with both operands exchanged."""
        return replace(self, a=self.b, b=self.a)


@dataclass(frozen=True)
class ContractionOperand:
    """An operand: number of the kernel's input, and its conversion to the accumulator type.

    A factor is no input, and computed where it is read.
    """

    number: int
    element: ir.Type
    conversion: Conversion = ()
    factor: Factor | None = None

    def inputs(self, kernel: Kernel) -> set[int]:
        """Return the numbers of the kernel's inputs that it is read from."""
        if self.factor is None:
            return {self.number}
        arrays = {value for op in self.factor.members for value in op.operands}
        return {number for number, value in enumerate(kernel.inputs) if value in arrays}


@dataclass(frozen=True)
class EpilogueInput:
    """An operand of an epilogue operation: an earlier value, a scalar, or an array by its strides.

    `strides` has one entry for each dimension of the result.
    """

    value: ir.Value
    kind: str  # "value", "scalar" or "array"
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class EpilogueOp:
    """One elementwise linalg.generic after the contraction."""

    operation: ir.Operation
    inputs: tuple[EpilogueInput, ...]

    @property
    def body(self) -> ir.Block:
        """The block that computes one element."""
        block: ir.Block = self.operation.regions[0].blocks[0]
        return block


@dataclass(frozen=True)
class Contraction:
    """c[batch, m, n] = sum over k_outer, k of a[...] * b[...], then the epilogue; n is unit-stride in c if possible."""

    kernel: Kernel
    a: ContractionOperand
    b: ContractionOperand
    dot: ir.Value
    batch: tuple[ContractionAxis, ...]
    m: ContractionAxis
    n: ContractionAxis
    k: ContractionAxis
    k_outer: tuple[ContractionAxis, ...] = ()
    epilogue: tuple[EpilogueOp, ...] = ()
    shape: tuple[int, ...] = ()

    @property
    def sum_type(self) -> ir.Type:
        """Element type of the contraction's own result, before the epilogue."""
        return self.dot.type.element_type

    @property
    def depth(self) -> int:
        """Return the steps of k, over all its axes."""
        return self.k.extent * math.prod(axis.extent for axis in self.k_outer)

    @property
    def batches(self) -> int:
        """Number of independent products."""
        return math.prod(axis.extent for axis in self.batch)

    @property
    def arrays(self) -> list[EpilogueInput]:
        """Arrays that the epilogue loads, one for each operand."""
        return [i for op in self.epilogue for i in op.inputs if i.kind == "array"]

    @property
    def epilogue_inputs(self) -> list[int]:
        """Numbers of the kernel's inputs that the epilogue reads, arrays and scalars."""
        read = {i.value for op in self.epilogue for i in op.inputs}
        return [number for number, value in enumerate(self.kernel.inputs) if value in read]

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Pairs (result, input) that may alias: the epilogue loads the array at the stored index only."""

        def moving(strides: Sequence[int]) -> list[int]:
            return [0 if extent == 1 else stride for stride, extent in zip(strides, self.shape, strict=True)]

        inputs, own = self.kernel.inputs, moving(row_major(self.shape))
        operands = self.a.inputs(self.kernel) | self.b.inputs(self.kernel)
        operands |= {inputs.index(i.value) for i in self.arrays if moving(i.strides) != own}
        fitting = dict.fromkeys(n for i in self.arrays if (n := inputs.index(i.value)) not in operands)
        results = enumerate(self.kernel.results)
        return tuple((r, n) for r, value in results for n in fitting if inputs[n].type == value.type)

    def packs(self, function: str) -> tuple[Packing, ...]:
        """Return the phase that packs rhs into the first scratch; see `Emitted`.

        None where another phase reads rhs too: it is also lhs, or an operand of the epilogue. A factor stays as it is
        stored, which is smaller.
        """
        others = [self.a.number, *(self.kernel.inputs.index(i.value) for i in self.arrays)]
        shared = self.b.factor is not None or self.b.number in others
        return () if shared else (Packing(function, self.b.number, 0),)

    @property
    def epilogue_length(self) -> int:
        """Operations of the epilogue for one element, each counted once, but for the longest functions."""
        return self._epilogue_operations(LONG_FUNCTIONS)

    @property
    def epilogue_size(self) -> int:
        """Operations of the epilogue for one element; an elementary function counts as its expansion."""
        return self._epilogue_operations(EXPANSIONS)

    def _epilogue_operations(self, expanded: Container[str]) -> int:
        names = [name for op in self.epilogue for name in body_names(op.operation)]
        return len(names) + EXPANDED * sum(name in expanded for name in names)

    def swapped(self) -> Contraction:
        """Return the transposed product: c^T = b^T a^T."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            batch=tuple(axis.swapped() for axis in self.batch),
            m=self.n.swapped(),
            n=self.m.swapped(),
            k=self.k.swapped(),
            k_outer=tuple(axis.swapped() for axis in self.k_outer),
        )


def match_contraction(kernel: Kernel) -> Contraction | None:
    """Match a kernel as a contraction, or return None."""
    dots = [op for op in kernel.ops if is_generic(op) and reads_outputs(op)]  # an outer product sums over no loop
    operands = _match_body(dots[0], kernel) if len(dots) == 1 and starts_at_zero(dots[0]) else None
    factors = [operand.factor for operand in operands or () if operand.factor is not None]
    before = {op for factor in factors for op in factor.members}
    epilogue = match_epilogue(kernel, dots[0], before) if operands is not None else None
    if operands is None or epilogue is None:
        is_complex = any(isinstance(v.type.element_type, ir.ComplexType) for op in dots for v in op.results)
        refuse(COMPLEX if is_complex else CONTRACTED)
        return None
    return _arrange(kernel, dots[0], operands, epilogue)


# --- the contraction itself ---------------------------------------------------------------------------


def _match_body(dot: ir.Operation, kernel: Kernel) -> tuple[ContractionOperand, ContractionOperand] | None:
    """Match `yield acc + convert(x) * convert(y)`; return both operands."""
    conversions = factor_conversions(dot)
    if conversions is None:
        return None
    a, b = (
        operand_of(kernel, v, chain) or _computed_operand(dot, number, chain)
        for number, (v, chain) in enumerate(zip(dot.operands[:2], conversions, strict=True))
    )
    if a is None or b is None or (a.factor is not None and b.factor is not None):
        return None  # one of them has to be in memory
    return a, b


def _computed_operand(dot: ir.Operation, number: int, conversion: Sequence[ir.Operation]) -> ContractionOperand | None:
    """Return an array that the kernel computes as an operand; None if it is not read in place."""
    factor = factor_of(dot, number)
    if factor is None:
        return None
    return ContractionOperand(-1, factor.value.type.element_type, steps_of(conversion), factor)


def operand_of(kernel: Kernel, value: ir.Value, conversion: Sequence[ir.Operation]) -> ContractionOperand | None:
    """Return an array of the kernel as an operand; None if it is not one of its inputs."""
    if value not in kernel.inputs or not isinstance(value.type, ir.RankedTensorType):
        return None
    return ContractionOperand(kernel.inputs.index(value), value.type.element_type, steps_of(conversion))


# --- the epilogue ------------------------------------------------------------------------------------


def match_epilogue(
    kernel: Kernel, dot: ir.Operation, before: Container[ir.Operation] = ()
) -> tuple[EpilogueOp, ...] | None:
    """Match the elementwise operations after the sums, all but those `before`; None if there are others."""
    made = {dot.results[0]}
    shape = dot.results[0].type.shape
    ops = []
    for op in kernel.ops:
        if op == dot or op in before or op.name in ("arith.constant", "tensor.empty", "linalg.fill"):
            continue
        matched = _match_epilogue_op(op, kernel, made, shape) if is_generic(op) else None
        if matched is None:
            return None
        ops.append(matched)
        made.update(op.results)
    return tuple(ops) if all(result in made for result in kernel.results) else None


def _match_epilogue_op(
    op: ir.Operation, kernel: Kernel, made: set[ir.Value], shape: Sequence[int]
) -> EpilogueOp | None:
    loops, block = loops_of(op), op.regions[0].blocks[0]
    same_shape = all(list(result.type.shape) == list(shape) for result in op.results)
    if not (same_shape and loops.in_order and not reads_outputs(op) and can_clone(block, indices=True)):
        return None
    inputs = []
    for value, map_ in zip(inputs_of(op), loops.maps, strict=False):
        found = _epilogue_input(value, map_, kernel, made, shape)
        if found is None:
            return None
        inputs.append(found)
    return EpilogueOp(op, tuple(inputs))


def _epilogue_input(
    value: ir.Value, map_: ir.AffineMap, kernel: Kernel, made: set[ir.Value], shape: Sequence[int]
) -> EpilogueInput | None:
    if not isinstance(value.type, ir.RankedTensorType):
        outside = defining(value) is None or constant_attribute(value) is not None
        return EpilogueInput(value, "scalar") if outside else None
    strides = map_strides(map_, value.type.shape)
    if strides is None:
        return None
    if value in made:
        own = row_major(shape)
        same = all(s == o or extent == 1 for s, o, extent in zip(strides, own, shape, strict=True))
        return EpilogueInput(value, "value") if same else None
    return EpilogueInput(value, "array", strides) if value in kernel.inputs else None


# --- loops ---------------------------------------------------------------------------------------------


def _arrange(
    kernel: Kernel,
    dot: ir.Operation,
    operands: tuple[ContractionOperand, ContractionOperand],
    epilogue: tuple[EpilogueOp, ...],
) -> Contraction | None:
    roles = _loops_by_role(dot, [operand.factor for operand in operands])
    if roles is None:
        return None
    inputs = [i for op in epilogue for i in op.inputs if i.kind == "array"]
    indexed = any("linalg.index" in body_names(op.operation) for op in epilogue)

    def together(outer: ContractionAxis, inner: ContractionAxis) -> bool:
        """Whether the epilogue allows two adjacent vectorized loops to collapse."""
        (d, _), (e, extent) = outer.dims[-1], inner.dims[0]
        return not indexed and all(i.strides[d] == i.strides[e] * extent for i in inputs)

    batch, m, n = (sorted(roles[role], key=lambda axis: -axis.c) for role in ("batch", "m", "n"))
    along_m = bool(m) and (m[-1].c == 1 or not n)
    # One loop each for m, n and k; the others of m and n become batch loops, of k outer sums.
    *outer_m, inner_m = _innermost_last(_merge(m, together if along_m else None), "a" if operands[0].factor else "")
    *outer_n, inner_n = _innermost_last(_merge(n, together), "b" if operands[1].factor else "")
    *outer_k, inner_k = _merge(sorted(roles["k"], key=lambda axis: (-axis.a, -axis.b))) or [ContractionAxis()]
    a, b = operands
    outer, shape = (*_merge(batch), *outer_m, *outer_n), tuple(dot.results[0].type.shape)
    sums = (dot.results[0], outer, inner_m, inner_n, inner_k, tuple(outer_k))
    found = Contraction(kernel, a, b, *sums, epilogue, shape)
    return found.swapped() if along_m else found


# The role of a loop, by whether it runs over lhs, rhs and the result.
_ROLES = {
    (True, True, True): "batch",
    (True, False, True): "m",
    (False, True, True): "n",
    (True, True, False): "k",
}


def _loops_by_role(dot: ir.Operation, factors: Sequence[Factor | None]) -> dict[str, list[ContractionAxis]] | None:
    """Return the loops whose extent is not 1 (it may be 0) by role; None when one has no role."""
    loops, strides = loops_of(dot), strides_of(dot)
    if strides is None:
        return None
    for number, factor in enumerate(factors):
        if factor is not None:  # all its dimensions are loops
            by_loop = dict(zip(loops.dims[number], factor.strides, strict=True))
            strides[number] = tuple(by_loop.get(loop, 0) for loop in range(len(loops.extents)))
    places = {loop: place for place, loop in enumerate(loops.dims[2])}
    found: dict[str, list[ContractionAxis]] = {role: [] for role in _ROLES.values()}
    for loop, (extent, a, b, c) in enumerate(zip(loops.extents, *strides, strict=True)):
        if (loop in places) is loops.reduced[loop]:
            return None
        if extent != 1:
            role = _ROLES.get((a > 0, b > 0, loop in places))
            if role is None:
                return None
            dims = ((places[loop], extent),) if loop in places else ()
            found[role].append(ContractionAxis(extent, a, b, c, dims))
    return found


def _merge(
    axes: Sequence[ContractionAxis], together: Callable[[ContractionAxis, ContractionAxis], bool] | None = None
) -> list[ContractionAxis]:
    """Collapse adjacent loops that are contiguous in every operand."""
    out: list[ContractionAxis] = []
    for axis in axes:
        last = out[-1] if out else ContractionAxis()
        dense = (last.a, last.b, last.c) == tuple(stride * axis.extent for stride in (axis.a, axis.b, axis.c))
        if out and dense and (together is None or together(last, axis)):
            out[-1] = replace(axis, extent=last.extent * axis.extent, dims=last.dims + axis.dims)
        else:
            out.append(axis)
    return out


def _innermost_last(axes: Sequence[ContractionAxis], factor: str) -> list[ContractionAxis]:
    """Put the longest loop last, unless the last one is unit-stride in the result, or any in a factor."""
    adjacent = [axis for axis in axes if factor and getattr(axis, factor) == 1]
    if not axes or (axes[-1].c == 1 and not adjacent):
        return list(axes) or [ContractionAxis()]
    longest = adjacent[0] if adjacent else max(axes, key=lambda axis: axis.extent)
    return [axis for axis in axes if axis is not longest] + [longest]
