"""Sliding windows over arrays: the reduction of each window, and scatter to its selected element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.checking import InitValues, Operand, Operands, Rules, Sizes, checking
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.attributes.windows import Window, dilated, same_padding
from stablexla.dialects.shapes import Shape
from stablexla.ops.support.combiners import accumulates_in, check_reduction_operands, checked_combiner

__all__ = [
    "reduce_window", "reduce_window_with_general_padding", "select_and_scatter",
    "select_and_scatter_with_general_padding",
]  # fmt: skip

#: "SAME", "VALID", or (low, high) for each dimension.
Padding = str | Sequence[tuple[int, int]]

P = ParamSpec("P")
R = TypeVar("R")


def _padding_last_of_six(function: Callable[P, R]) -> Callable[P, R]:
    """Lets `function` take its padding as the last of six positional arguments; keywords are unaffected."""

    @wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> R:
        if len(args) == 6 and not named:
            named["padding"] = args[5]
            return function(*args[:5], **named)  # type: ignore[arg-type]  # mypy keeps args and named as they are
        return function(*args, **named)

    return called


@operation("stablehlo.reduce_window")
@_padding_last_of_six
def reduce_window(
    operands: Operands,
    init_values: InitValues,
    computation: Computation,
    window_dimensions: Sizes,
    window_strides: Sequence[int] | None,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
    padding: Padding | None = None,
) -> XlaOp:
    """Each window of the operands reduced by a computation, all operands at once.

    The order in which the elements of a window are combined is not fixed, so the computation should be associative, and
    the initial values its identity. With six arguments by their places the last is the padding, as the
    operation semantics calls it; with eight they are in the order of its table.

    Args:
        operands: N arrays of the same dimensions.
        init_values: N scalars of their element types, which numbers take; they also pad windows that reach over
            the edges.
        computation: takes N values reduced so far and N elements, and returns N values; for N above 1 as a tuple.
        window_dimensions: the size of the window along each dimension.
        window_strides: how far it moves along each dimension; None means 1.
        base_dilations: the distances between the operands' elements; without it 1.
        window_dilations: the distances between the elements of a window; without it 1.
        padding: "VALID" for windows inside the operands; "SAME" for as many as there are strides; or
            (low, high) for each dimension, which may be negative.

    Returns:
        An array for N = 1, else a tuple of N.

    Raises:
        ShapeError: (C1) not as many initial values as operands, or no operand; (C2) dimensions of the operands differ;
            (C3) initial values of other types; (C4 to C11) not a positive size, stride and dilation for each dimension;
            (C12) no such padding; (C13) a computation of other types; (I2) an initial value that is no scalar.

    Source: `ReduceWindow` of XLA's operation semantics; StableHLO `reduce_window`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[4, 6])
    >>> sx.reduce_window(x, -np.inf, sx.max, (2, 3), (2, 3), padding="VALID")
    XlaOp(stablehlo.reduce_window, f32[2,2])
    """
    window = (window_dimensions, window_strides, base_dilations, window_dilations, padding)
    return _reduce_window("reduce_window", operands, init_values, computation, *window)


@operation("stablehlo.reduce_window")
def reduce_window_with_general_padding(
    operands: Operands,
    init_values: InitValues,
    computation: Computation,
    window_dimensions: Sizes,
    window_strides: Sequence[int] | None,
    base_dilations: Sequence[int] | None,
    window_dilations: Sequence[int] | None,
    padding: Padding,
) -> XlaOp:
    """`reduce_window` of dilated operands by dilated windows.

    Args:
        operands: N arrays of the same dimensions.
        init_values: N scalars of their element types, which numbers take; they also stand between and around the
            operands' elements.
        computation: takes N values reduced so far and N elements, and returns N values; for N above 1 as a tuple.
        window_dimensions: how many elements of each dimension the window takes.
        window_strides: how far it moves along each dimension; None and () mean 1 everywhere, here and below.
        base_dilations: how far apart the operands' elements are set.
        window_dilations: the distances between the elements of a window.
        padding: (low, high) for each dimension, or "SAME" or "VALID".

    Raises:
        ShapeError: as `reduce_window`; (C8, C9) not a positive base dilation for each dimension; (C10, C11) nor window
            dilation.

    Source: `ReduceWindow` of XLA's operation semantics; StableHLO `reduce_window`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[5])
    >>> sx.reduce_window_with_general_padding(x, x.builder.constant(0.0), sx.add, (2,), (1,), (2,), (3,), [(1, 0)])
    XlaOp(stablehlo.reduce_window, f32[7])
    """
    return _reduce_window(
        "reduce_window_with_general_padding",
        operands,
        init_values,
        computation,
        window_dimensions,
        window_strides,
        base_dilations,
        window_dilations,
        padding,
    )


def _reduce_window(
    name: str,
    operands: Operands,
    init_values: InitValues,
    computation: Computation,
    sizes: Any,
    strides: Any,
    base_dilations: Any,
    window_dilations: Any,
    padding: Any,
) -> XlaOp:
    shown = {"operands": operands, "init_values": init_values, "window_dimensions": sizes, "padding": padding}
    with checking(name, **shown) as rule:
        xs = rule.sequence("operands", operands)
        inits = rule.init_values("init_values", init_values, xs)
        types = check_reduction_operands(rule, xs, inits, count="C1", dimensions="C2", types="C3", scalars="I2")
        make = _WindowMaker(rule, xs[0].shape)
        make.sizes("C4", "C5", sizes)
        make.strides("C6", "C7", strides)
        make.base_dilations = make.positive("C8", "C9", "base_dilations", base_dilations)
        make.window_dilations = make.positive("C10", "C11", "window_dilations", window_dilations)
        window = make.window("C12", padding)
        body = checked_combiner(rule, "C13", xs[0], computation, types)
    extents = window.positions(xs[0].shape.dimensions)
    results = [Shape(leaf.element_type, extents) for leaf in body.result_shape.leaves]
    result = results[0] if len(results) == 1 else Shape.tuple(results)
    attributes: dict[str, object] = {
        "window_dimensions": window.sizes,
        "window_strides": window.strides,
        "base_dilations": window.base_dilations,
        "window_dilations": window.window_dilations,
        "padding": _pairs(window.padding, xs[0]),
    }
    return xs[0].builder.emit("stablehlo.reduce_window", [*xs, *inits], result, attributes, [body])


class _WindowMaker:
    """A window in the making, each part checked under the numbers that its operation's rules have."""

    def __init__(self, rule: Rules, shape: Shape) -> None:
        self._rule, self._shape = rule, shape
        self._sizes = self._strides = self.base_dilations = self.window_dilations = (1,) * shape.rank

    def positive(self, count: str, positive: str, name: str, given: Any) -> tuple[int, ...]:
        """A positive number for each dimension; nothing given means 1."""
        rank = self._shape.rank
        numbers = (1,) * rank if given is None else self._rule.integers(name, given) or (1,) * rank
        fits = f"{name} must have {rank} numbers, one for each dimension, not {told(numbers)}"
        self._rule(count, len(numbers) == rank, fits)
        self._rule(positive, all(n > 0 for n in numbers), f"{name} must be positive, not {told(numbers)}")
        return numbers

    def sizes(self, count: str, positive: str, given: Any) -> None:
        """The window's sizes, which must be given."""
        self._rule(count, given is not None, "window_dimensions must be given")
        given = self._rule.sizes("window_dimensions", given)
        rank = self._shape.rank
        self._rule(count, len(given) == rank, f"window_dimensions must have {rank} numbers, not {told(given)}")
        self._sizes = self.positive(count, positive, "window_dimensions", given)

    def strides(self, count: str, positive: str, given: Any) -> None:
        """The window's strides."""
        self._strides = self.positive(count, positive, "window_strides", given)

    def window(self, pairs: str, padding: Any) -> Window:
        """The window, with its padding."""
        parts = (self._sizes, self._strides, self.base_dilations, self.window_dilations)
        return Window(*parts, self._padding(pairs, padding))

    def _padding(self, number: str, given: Any) -> tuple[tuple[int, int], ...]:
        rank, rule = self._shape.rank, self._rule
        hint = '"SAME", "VALID" or a pair (low, high) for each dimension'
        if isinstance(given, str):
            rule(number, given in ("SAME", "VALID"), f"there is no padding {told(given)}", hint)
            return ((0, 0),) * rank if given == "VALID" else self._same_padding()
        rule(number, given is not None, "padding must be given", hint)
        rows = rule.rows("padding", given, number)
        fits = len(rows) == rank and all(len(row) == 2 for row in rows)
        rule(number, fits, f"padding must have a pair for each of {rank} dimensions, not {told(rows)}", hint)
        return tuple((row[0], row[1]) for row in rows)

    def _same_padding(self) -> tuple[tuple[int, int], ...]:
        extents = map(dilated, self._shape.dimensions, self.base_dilations)
        reaches = map(dilated, self._sizes, self.window_dilations)
        return tuple(map(same_padding, extents, reaches, self._strides))


def _pairs(padding: Sequence[tuple[int, int]], op: XlaOp) -> ir.Attribute:
    """Padding as StableHLO has it: a constant of two columns."""
    values = np.array(padding, np.int64).reshape(len(padding), 2)
    with ir.Location.unknown(op.builder.context):
        type_ = ir.RankedTensorType.get(values.shape, ir.IntegerType.get_signless(64))
        return ir.DenseElementsAttr.get(values, type=type_)


@operation("stablehlo.select_and_scatter")
def select_and_scatter(
    operand: XlaOp,
    select: Computation,
    window_dimensions: Sizes,
    window_strides: Sequence[int] | None,
    padding: Padding,
    source: XlaOp,
    init_value: Operand,
    scatter: Computation,
) -> XlaOp:
    """One element of each window of `operand` is selected, and an element of `source` combined into its place.

    Elements of a window are compared in order: `select(a, b)` tells whether to keep a, which comes before b. Padding is
    never selected. Places that no window selects hold `init_value`.

    Args:
        operand: the array that the windows slide over.
        select: takes two elements, the first from the lower index, and returns a pred: whether it is the one.
        window_dimensions: the size of the window along each dimension.
        window_strides: how far it moves along each dimension; None means 1.
        padding: "VALID", "SAME", or (low, high) for each dimension.
        source: an element for each window.
        init_value: a scalar.
        scatter: combines the present value of a position with an element of `source`.

    Raises:
        ShapeError: (C1) element types differ; (C2) `source` has not an element for each window; (C3) `init_value` of
            another type; (C4 to C7) not a positive size and stride for each dimension; (C8) no such padding; (C9, C10)
            computations of other types; (I3) an `init_value` that is no scalar.

    Source: `SelectAndScatter` of XLA's operation semantics; StableHLO `select_and_scatter`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[4, 6]), b.parameter(1, sx.f32[2, 2])
    >>> sx.select_and_scatter(x, sx.ge, (2, 3), (2, 3), "VALID", y, b.constant(0.0), sx.add)
    XlaOp(stablehlo.select_and_scatter, f32[4,6])
    """
    return _select_and_scatter(
        "select_and_scatter",
        operand,
        select,
        window_dimensions,
        window_strides,
        padding,
        source,
        init_value,
        scatter,
    )


@operation("stablehlo.select_and_scatter")
def select_and_scatter_with_general_padding(
    operand: XlaOp,
    select: Computation,
    window_dimensions: Sizes,
    window_strides: Sequence[int] | None,
    padding: Sequence[tuple[int, int]],
    source: XlaOp,
    init_value: Operand,
    scatter: Computation,
) -> XlaOp:
    """`select_and_scatter` with the padding written out.

    Raises:
        ShapeError: as `select_and_scatter`.

    Source: XLA's builder.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[4]), b.parameter(1, sx.f32[3])
    >>> sx.select_and_scatter_with_general_padding(x, sx.ge, (2,), (2,), [(1, 1)], y, b.constant(0.0), sx.add)
    XlaOp(stablehlo.select_and_scatter, f32[4])
    """
    return _select_and_scatter(
        "select_and_scatter_with_general_padding",
        operand,
        select,
        window_dimensions,
        window_strides,
        padding,
        source,
        init_value,
        scatter,
    )


def _select_and_scatter(
    name: str,
    operand: XlaOp,
    select: Computation,
    sizes: Any,
    strides: Any,
    padding: Any,
    source: XlaOp,
    init_value: Operand,
    scatter: Computation,
) -> XlaOp:
    shown = {"operand": operand, "source": source, "init_value": init_value, "window_dimensions": sizes}
    with checking(name, **shown, window_strides=strides, padding=padding) as rule:
        x, y = rule.op("operand", operand), rule.op("source", source)
        x, y, init = rule.ops(operand=x, source=y, init_value=init_value)
        rule.arrays(operand=x, source=y, init_value=init)
        element = x.shape.element_type
        rule("C1", y.shape.element_type is element, f"source must be of type {element} as operand")
        rule("I3", init.shape.is_scalar, f"init_value must be a scalar, not {init.shape}")
        rule("C3", init.shape.element_type is element, f"init_value must be of type {element} as operand")
        make = _WindowMaker(rule, x.shape)
        make.sizes("C4", "C5", sizes)
        make.strides("C6", "C7", strides)
        window = make.window("C8", padding)
        wanted = Shape(element, window.positions(x.shape.dimensions))
        rule("C2", y.shape.with_dynamic(()) == wanted, f"source must be {wanted}, an element for each window")
        selector = _selector(rule, x, select)
        combiner = _combiner(rule, x, scatter)
    attributes: dict[str, object] = {
        "window_dimensions": window.sizes,
        "window_strides": window.strides,
        "padding": _pairs(window.padding, x),
    }
    result = Shape(combiner.result_shape.element_type, x.shape.dimensions)
    return x.builder.emit("stablehlo.select_and_scatter", [x, y, init], result, attributes, [selector, combiner])


def _selector(rule: Rules, x: XlaOp, given: Computation) -> XlaComputation:
    """C9: of two elements, whether it is the first."""
    scalar = Shape(x.shape.element_type)
    select = x.builder.computation(rule, "select", given, [scalar, scalar])
    fits = select.parameter_shapes == (scalar, scalar) and select.result_shape == Shape("pred")
    rule("C9", fits, f"select {select!r} must take two scalars of operand's type and return a pred")
    return select


def _combiner(rule: Rules, x: XlaOp, given: Computation) -> XlaComputation:
    """C10: two values of a type that holds the operand's, combined into one."""
    element = x.shape.element_type
    scatter = x.builder.computation(rule, "scatter", given, [Shape(element), Shape(element)])
    made = scatter.result_shape
    fits = made.is_scalar and accumulates_in(made.element_type, element) and scatter.parameter_shapes == (made, made)
    rule("C10", fits, f"scatter {scatter!r} must take two scalars of operand's type and return one")
    return scatter
