"""Flattened arrays (lines) and loop nests over them: each loop has a stride in every array.

For kernels whose addresses are computed at run time: they load and store elements by linear index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, scf, tensor

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.generic import fill
from stablexla.lowering.support.storage import constant, from_storage
from stablexla.lowering.support.types import TensorType

Values = list[ir.Value]
# A loop body: (linear index in each array, carried values) -> carried values.
Iteration = Callable[[Values, Values], Sequence[ir.Value]]


@dataclass(frozen=True)
class Axis:
    """A loop: its trip count (`extent`), and its stride in each array, in elements (`steps`)."""

    extent: int
    steps: tuple[int, ...]


def merged(axes: Iterable[Axis]) -> list[Axis]:
    """Collapse a loop nest: drop loops of trip count 1, merge adjacent loops that are contiguous in every array."""
    found: list[Axis] = []
    for axis in axes:
        if axis.extent == 1:
            continue
        if found and found[-1].steps == tuple(s * axis.extent for s in axis.steps):
            found[-1] = Axis(found[-1].extent * axis.extent, axis.steps)
        else:
            found.append(axis)
    return found


def line_type(type_: TensorType) -> TensorType:
    """Return the type of the flattened array."""
    return type_.with_shape((type_.size,))


def as_line(value: ir.Value, type_: TensorType) -> ir.Value:
    """Flatten an array in row-major order."""
    return reshaped(value, type_, line_type(type_)) if type_.rank else fill(value, line_type(type_))


def from_line(line: ir.Value, type_: TensorType) -> ir.Value:
    """Reshape a flattened array to its type."""
    if type_.rank:
        return reshaped(line, line_type(type_), type_)
    return from_storage(element_at(line, index(0)), type_.element)


def read_only_line(value: ir.Value, type_: TensorType) -> ir.Value:
    """Flatten an array like `as_line`; a splat becomes its stored scalar."""
    line = as_line(value, type_)
    maker = line.owner
    is_splat = not isinstance(maker, ir.Block) and maker.operation.name == "tensor.splat"
    return maker.operation.operands[0] if is_splat else line


def element_at(line: ir.Value, place: ir.Value) -> ir.Value:
    """Load a stored element of a flattened array, or of a scalar that stands for a splat."""
    return tensor.extract(line, [place]) if isinstance(line.type, ir.RankedTensorType) else line


def index(number: int) -> ir.Value:
    """Return a constant of type index."""
    return constant(ir.IndexType.get(), number)


def moved(place: ir.Value, trip_count: ir.Value, step: int) -> ir.Value:
    """Return `place` advanced by `trip_count` iterations of stride `step`."""
    if step == 0:
        return place
    return arith.addi(place, trip_count if step == 1 else arith.muli(trip_count, index(step)))


def loops(axes: Sequence[Axis], places: Values, carried: Values, body: Iteration) -> Values:
    """Emit a loop nest, the first axis outermost, that carries `carried` through all iterations."""
    if not axes:
        return list(body(places, carried))
    axis, *rest = axes
    return loop(axis, index(0), index(axis.extent), places, carried, lambda p, c: loops(rest, p, c, body))


def loop(axis: Axis, low: ir.Value, high: ir.Value, places: Values, carried: Values, body: Iteration) -> Values:
    """Emit one loop with the iterations [low, high)."""
    made = scf.ForOp(low, high, index(1), carried)
    with ir.InsertionPoint(made.body):
        here = [moved(place, made.induction_variable, step) for place, step in zip(places, axis.steps, strict=True)]
        scf.YieldOp(list(body(here, list(made.inner_iter_args))))
    return list(made.results)
