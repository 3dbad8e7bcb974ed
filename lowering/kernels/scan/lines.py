"""Arrays as lines of elements, and loops over them: each loop says how far one turn moves on in each array.

For kernels whose addresses are computed while they run: they read and write elements by their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, scf, tensor

from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.generic import fill
from stablexla.lowering.support.storage import constant, from_storage
from stablexla.lowering.support.types import TensorType

Values = list[ir.Value]
# What is done at one place: (number of the element in each array, carried values) -> carried values.
Turn = Callable[[Values, Values], Sequence[ir.Value]]


@dataclass(frozen=True)
class Axis:
    """A loop: how many turns, and how many elements one turn moves on in each array."""

    extent: int
    steps: tuple[int, ...]


def row_major(shape: Sequence[int]) -> list[int]:
    """How far apart neighbours are along each dimension."""
    return [prod(shape[d + 1 :]) for d in range(len(shape))]


def merged(axes: Iterable[Axis]) -> list[Axis]:
    """Without loops of one turn, and with one loop for neighbours that walk evenly through every array."""
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
    """The type of an array's elements one after the other."""
    return type_.with_shape((type_.size,))


def as_line(value: ir.Value, type_: TensorType) -> ir.Value:
    """An array's elements one after the other, in row-major order."""
    return reshaped(value, type_, line_type(type_)) if type_.rank else fill(value, line_type(type_))


def from_line(line: ir.Value, type_: TensorType) -> ir.Value:
    """The array of these elements."""
    if type_.rank:
        return reshaped(line, line_type(type_), type_)
    return from_storage(element_at(line, index(0)), type_.element)


def read_only_line(value: ir.Value, type_: TensorType) -> ir.Value:
    """Like `as_line`; where all elements are one stored scalar, that scalar."""
    line = as_line(value, type_)
    maker = line.owner
    is_splat = not isinstance(maker, ir.Block) and maker.operation.name == "tensor.splat"
    return maker.operation.operands[0] if is_splat else line


def element_at(line: ir.Value, place: ir.Value) -> ir.Value:
    """A stored element of a line, or of a scalar that stands for one."""
    return tensor.extract(line, [place]) if isinstance(line.type, ir.RankedTensorType) else line


def index(number: int) -> ir.Value:
    """A constant of type index."""
    return constant(ir.IndexType.get(), number)


def moved(place: ir.Value, turns: ir.Value, step: int) -> ir.Value:
    """`place` after so many turns."""
    if step == 0:
        return place
    return arith.addi(place, turns if step == 1 else arith.muli(turns, index(step)))


def loops(axes: Sequence[Axis], places: Values, carried: Values, turn: Turn) -> Values:
    """Loops one inside the other, the first one outermost, that carry `carried` through all their turns."""
    if not axes:
        return list(turn(places, carried))
    axis, *rest = axes
    return loop(axis, index(0), index(axis.extent), places, carried, lambda p, c: loops(rest, p, c, turn))


def loop(axis: Axis, low: ir.Value, high: ir.Value, places: Values, carried: Values, turn: Turn) -> Values:
    """The turns [low, high) of one loop."""
    made = scf.ForOp(low, high, index(1), carried)
    with ir.InsertionPoint(made.body):
        here = [moved(place, made.induction_variable, step) for place, step in zip(places, axis.steps, strict=True)]
        scf.YieldOp(list(turn(here, list(made.inner_iter_args))))
    return list(made.results)
