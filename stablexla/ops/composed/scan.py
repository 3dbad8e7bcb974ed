"""Scans: a computation applied along a dimension, with loop-carried values; built as a loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stablexla.builder.checking import Operands, Rules, checking
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.shapes import Shape
from stablexla.ops.control import while_
from stablexla.ops.shape import broadcast_in_dim, dynamic_slice, dynamic_update_slice, reshape
from stablexla.ops.tuples import tuple as pack

__all__ = ["scan"]


@operation("stablehlo.while")
def scan(
    inputs: Operands,
    inits: Operands,
    computation: Computation,
    scan_dimension: int,
    scan_dimension_size: int | None = None,
    is_reverse: bool = False,
    is_associative: bool | None = None,
) -> XlaOp:
    """Scans along a dimension of the inputs, applying a computation to their slices and the carried values.

    Args:
        inputs: N arrays of one size along the dimension; none, where the size is given.
        inits: M arrays, the first values that are carried.
        computation: takes a slice of each input, without the dimension, and the M values; returns the slices of K
            outputs and the next M values, as a tuple if they are several. It may read values around it.
        scan_dimension: the dimension, of the inputs and of the outputs.
        scan_dimension_size: its size.
        is_reverse: from the last slice to the first.
        is_associative: whether the computation is. It runs one slice after another in any case.

    Returns:
        The K outputs and the last M values: a tuple, or an array if it is only one.

    Raises:
        ShapeError: neither inputs nor outputs; no such dimension, or sizes that differ; a computation that does not
            take the slices and values, or does not return the values.

    Source: `Scan` of XLA's builder; CHLO `scan`.

    >>> b = sx.XlaBuilder("example")
    >>> x, zero = b.parameter(0, sx.f32[8, 3]), b.constant(np.zeros(3, np.float32))
    >>> sums, total = sx.scan(x, zero, lambda a, c: (a + c, a + c), 0)
    >>> print(sums.shape, total.shape)
    f32[8,3] f32[3]
    """
    given = {"inputs": inputs, "inits": inits, "scan_dimension": scan_dimension}
    with checking("scan", **given, scan_dimension_size=scan_dimension_size) as rule:
        xs, carried = rule.sequence("inputs", inputs), rule.sequence("inits", inits)
        rule("", bool(xs or carried), "there must be inputs or inits")
        builder = rule.one_builder([*xs, *carried])
        rule.truth("is_reverse", is_reverse)
        if is_associative is not None:
            rule.truth("is_associative", is_associative)
        place = rule.integer("scan_dimension", scan_dimension)
        size = _size(rule, xs, place, scan_dimension_size)
        slices = [Shape(x.shape.element_type, _without(x.shape, place)) for x in xs]
        shapes = [*slices, *(c.shape for c in carried)]
        body = builder.computation(rule, "computation", computation, shapes, captures=True)
        outputs = _outputs(rule, body, shapes, carried, place)
    whole = [_empty(carried or xs, shape, place, size) for shape in outputs]
    loop = _Loop(body, len(xs), len(outputs), place, size, is_reverse)
    state = [builder.constant(0, "s64"), *whole, *carried]
    if size:
        state = list(while_(loop.goes_on, loop.step, pack([*state, *xs])))
    results = state[1 : 1 + len(outputs) + len(carried)]
    return results[0] if len(results) == 1 else pack(results)


class _Loop:
    """The loop's state is a counter, the outputs so far, the carried values, and the inputs."""

    def __init__(self, body: XlaComputation, inputs: int, outputs: int, place: int, size: int, reverse: bool) -> None:
        self.body, self.inputs, self.outputs = body, inputs, outputs
        self.place, self.size, self.reverse = place, size, reverse

    def goes_on(self, state: XlaOp) -> XlaOp:
        return state[0] < self.size

    def step(self, state: XlaOp) -> XlaOp:
        count, *rest = state
        where = self.size - 1 - count if self.reverse else count
        outputs, rest = rest[: self.outputs], rest[self.outputs :]
        carried, xs = rest[: len(rest) - self.inputs], rest[len(rest) - self.inputs :]
        made = state.builder.call(self.body, [*(self._slice(x, where) for x in xs), *carried])
        values = list(made) if made.shape.is_tuple else [made]
        written = [self._update(whole, value, where) for whole, value in zip(outputs, values)]
        return pack([count + 1, *written, *values[self.outputs :], *xs])

    def _slice(self, x: XlaOp, where: XlaOp) -> XlaOp:
        sizes = [1 if d == self.place else size for d, size in enumerate(x.shape.dimensions)]
        return reshape(dynamic_slice(x, self._starts(x, where), sizes), _without(x.shape, self.place))

    def _update(self, whole: XlaOp, value: XlaOp, where: XlaOp) -> XlaOp:
        sizes = [1 if d == self.place else size for d, size in enumerate(whole.shape.dimensions)]
        return dynamic_update_slice(whole, reshape(value, sizes), self._starts(whole, where))

    def _starts(self, x: XlaOp, where: XlaOp) -> list[XlaOp | int]:
        return [where if d == self.place else 0 for d in range(x.shape.rank)]


def _size(rule: Rules, xs: Sequence[XlaOp], place: int, given: int | None) -> int:
    """The size of the dimension that all inputs share."""
    for number, x in enumerate(xs):
        rule("", x.shape.is_array and x.shape.is_static, f"inputs[{number}] must be an array of static sizes")
        no_place = f"scan_dimension: {place} is no dimension of inputs[{number}], {x.shape}"
        rule.place("", place, x.shape.rank, no_place)
    rule("", place >= 0, "scan_dimension must not be negative")
    sizes = {x.shape.dimensions[place] for x in xs}
    if given is not None:
        sizes.add(rule.integer("scan_dimension_size", given))
    rule("", bool(sizes), "scan_dimension_size must be given where there are no inputs")
    rule("", len(sizes) == 1, f"the sizes along scan_dimension must be the same, not {sorted(sizes)}")
    (size,) = sizes
    rule("", size >= 0, "scan_dimension_size must not be negative")
    return size


def _outputs(
    rule: Rules, body: XlaComputation, shapes: Sequence[Shape], carried: Sequence[XlaOp], place: int
) -> list[Shape]:
    """The slices of the outputs, which the computation returns before the carried values."""
    rule("", body.parameter_shapes == tuple(shapes), f"computation {body!r} must take the slices, then the values")
    result = body.result_shape
    returned = list(result.tuple_shapes) if result.is_tuple else [result]
    count = len(returned) - len(carried)
    fits = count >= 0 and [*returned[count:]] == [c.shape for c in carried]
    rule("", fits, f"computation {body!r} must return slices of outputs, then the values of the shapes of inits")
    for shape in returned[:count]:
        rule("", shape.is_array and place <= shape.rank, f"an output slice {shape} has no place for scan_dimension")
    rule("", bool(count or carried), "there must be outputs or inits")
    return returned[:count]


def _without(shape: Shape, place: int) -> tuple[int, ...]:
    return (*shape.dimensions[:place], *shape.dimensions[place + 1 :])


def _empty(like: Sequence[XlaOp], shape: Shape, place: int, size: int) -> XlaOp:
    """Zeros for an output; every element is overwritten."""
    zero = like[0].builder.constant(np.zeros((), shape.element_type.dtype))
    return broadcast_in_dim(zero, (*shape.dimensions[:place], size, *shape.dimensions[place:]), ())
