"""Convolutions: windows of weights that move over an array, with padding, dilation, strides and groups.

The dimension numbers and the padding of `"SAME"` are in `convolution_numbers.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.checking import Rules, checking, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.shapes import Shape
from stablexla.ops.contraction import Precision, precision_attribute, preferred_type
from stablexla.ops.support.convolution_numbers import (
    ConvDimensionNumbers,
    GivenNumbers,
    GivenWindow,
    Window,
    checked_numbers,
    checked_padding,
    checked_sizes,
)

__all__ = ["conv", "conv_general", "conv_general_dilated", "conv_with_general_dimensions", "conv_with_general_padding"]

#: "SAME", "VALID", or (low, high) for each spatial dimension.
Padding = str | Iterable[tuple[int, int]]


@operation("stablehlo.convolution")
def conv(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None,
    padding: Padding,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """The convolution of `conv_with_general_padding`, with its padding in a word.

    `"VALID"` pads nothing. `"SAME"` pads zeros such that, were the strides 1, the result would be as large as `lhs`;
    an odd zero goes to the high side.

    Raises:
        ShapeError: as `conv_general_dilated`.

    Source: `Conv` of XLA's operation semantics; StableHLO `convolution`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.conv(b.parameter(0, sx.f32[8, 3, 32, 32]), b.parameter(1, sx.f32[16, 3, 5, 5]), (2, 2), "SAME")
    XlaOp(stablehlo.convolution, f32[8,16,16,16])
    """
    window = GivenWindow(window_strides, padding)
    groups = (feature_group_count, batch_group_count)
    return _conv("conv", lhs, rhs, window, None, groups, precision_config, preferred_element_type)


@operation("stablehlo.convolution")
def conv_with_general_padding(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None,
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """The sums of products of a window of weights with `lhs`, at each position of the window.

    Args:
        lhs: the input, its dimensions batch, features, and n spatial ones.
        rhs: the weights, their dimensions output features, input features, and n spatial ones.
        window_strides: how far the window moves, for each spatial dimension; None means 1.
        padding: zeros to put before and behind each spatial dimension of `lhs`; negative numbers take elements away.
            Or "SAME" or "VALID", as for `conv`.
        lhs_dilation: distance between the elements of `lhs`, zeros between them; without it 1.
        rhs_dilation: distance of the weights in the window; without it 1.
        feature_group_count: number of groups that input and output features are cut into; a group of output features
            sees only its own input features.
        batch_group_count: number of groups that the batch and the output features are cut into; a group of output
            features sees only its own part of the batch.
        precision_config: "DEFAULT", "HIGH" or "HIGHEST", for both operands or for each.
        preferred_element_type: the element type to sum in and to give, of the same kind and not narrower.

    Raises:
        ShapeError: as `conv_general_dilated`.

    Source: `ConvWithGeneralPadding` of XLA's operation semantics; StableHLO `convolution`.

    >>> b = sx.XlaBuilder("example")
    >>> x, w = b.parameter(0, sx.f32[8, 3, 32]), b.parameter(1, sx.f32[16, 3, 5])
    >>> sx.conv_with_general_padding(x, w, (1,), [(4, -1)], rhs_dilation=(2,))
    XlaOp(stablehlo.convolution, f32[8,16,27])
    """
    window = GivenWindow(window_strides, padding, lhs_dilation, rhs_dilation)
    groups = (feature_group_count, batch_group_count)
    name = "conv_with_general_padding"
    return _conv(name, lhs, rhs, window, None, groups, precision_config, preferred_element_type)


@operation("stablehlo.convolution")
def conv_with_general_dimensions(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None,
    padding: Padding,
    dimension_numbers: GivenNumbers | None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """`conv` with the dimensions in any order.

    Raises:
        ShapeError: as `conv_general_dilated`.

    Source: `ConvWithGeneralDimensions` of XLA's builder; StableHLO `convolution`.

    >>> b = sx.XlaBuilder("example")
    >>> numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")
    >>> x, w = b.parameter(0, sx.f32[8, 32, 32, 3]), b.parameter(1, sx.f32[5, 5, 3, 16])
    >>> sx.conv_with_general_dimensions(x, w, (2, 2), "VALID", numbers)
    XlaOp(stablehlo.convolution, f32[8,14,14,16])
    """
    window = GivenWindow(window_strides, padding)
    groups = (feature_group_count, batch_group_count)
    name = "conv_with_general_dimensions"
    return _conv(name, lhs, rhs, window, dimension_numbers, groups, precision_config, preferred_element_type)


@operation("stablehlo.convolution")
def conv_general(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None,
    padding: Padding,
    dimension_numbers: GivenNumbers | None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """`conv_with_general_padding` with the dimensions in any order, and without dilation.

    Raises:
        ShapeError: as `conv_general_dilated`.

    Source: `ConvGeneral` of XLA's builder; StableHLO `convolution`.

    >>> b = sx.XlaBuilder("example")
    >>> numbers = sx.ConvDimensionNumbers.of("WNC", "WIO", "NCW")
    >>> x, w = b.parameter(0, sx.f32[9, 8, 3]), b.parameter(1, sx.f32[2, 3, 5])
    >>> sx.conv_general(x, w, (1,), [(1, 0)], numbers)
    XlaOp(stablehlo.convolution, f32[8,5,9])
    """
    window = GivenWindow(window_strides, padding)
    groups = (feature_group_count, batch_group_count)
    return _conv("conv_general", lhs, rhs, window, dimension_numbers, groups, precision_config, preferred_element_type)


@operation("stablehlo.convolution")
def conv_general_dilated(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None,
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    dimension_numbers: GivenNumbers | None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> XlaOp:
    """The convolution of `conv_with_general_padding`, with the dimensions in any order.

    Args:
        dimension_numbers: `ConvDimensionNumbers`, or the letters of its `of`, ("NHWC", "HWIO", "NHWC"); `lhs`, `rhs`
            and the result are laid out as they say. None means XLA's order, that of `conv`.
        window_reversal: for each spatial dimension, whether the window's weights are taken from the last to the first.

    Raises:
        ShapeError: (C1) different ranks; (C2, C4, C5, C7, C9) a window that is not given for each spatial dimension;
            (C3, C6, C8) strides or dilations below 1; (C10, C11, C15, C16) groups that do not divide the batch or the
            features; (C12, C13, C17 to C20) dimension numbers that do not name each dimension once; (C14) features of
            `lhs` and `rhs` that do not fit; (C21 to C23) numbers of groups; (C24) precisions that are not two; (C27)
            element types that differ.

    Source: `ConvWithGeneralPadding` of XLA's operation semantics; `ConvGeneralDilated`; StableHLO `convolution`.

    >>> b = sx.XlaBuilder("example")
    >>> numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")
    >>> x, w = b.parameter(0, sx.f32[1, 9, 9, 4]), b.parameter(1, sx.f32[3, 3, 1, 8])
    >>> sx.conv_general_dilated(x, w, (1, 1), "VALID", (1, 1), (2, 2), numbers, feature_group_count=4)
    XlaOp(stablehlo.convolution, f32[1,5,5,8])
    """
    window = GivenWindow(window_strides, padding, lhs_dilation, rhs_dilation, window_reversal)
    groups = (feature_group_count, batch_group_count)
    name = "conv_general_dilated"
    return _conv(name, lhs, rhs, window, dimension_numbers, groups, precision_config, preferred_element_type)


def _conv(
    name: str,
    lhs: XlaOp,
    rhs: XlaOp,
    given: GivenWindow,
    given_numbers: GivenNumbers | None,
    groups: tuple[int, int],
    precision_config: Precision | None,
    preferred_element_type: str | ElementType | None,
) -> XlaOp:
    """Checks and emits any of them; without `numbers` the dimensions are in XLA's default order."""
    with checking(name, lhs=lhs, rhs=rhs, dimension_numbers=given_numbers) as rule:
        x, w = rule.ops(lhs=rule.op("lhs", lhs), rhs=rule.op("rhs", rhs))
        rule.arrays(lhs=x, rhs=w)
        rank = x.shape.rank
        rule("C1", rank == w.shape.rank, f"lhs and rhs must have the same rank, not {rank} and {w.shape.rank}")
        strides = given.strides if isinstance(given.strides, list | tuple) else ()
        is_bare = given_numbers is None and rank > 0 and len(strides) == rank
        named = "batch, features and spatial dimensions; rhs output features, input features and spatial ones"
        way = f"sx.reshape(lhs, {(1, 1, *x.shape.dimensions)}), sx.reshape(rhs, {(1, 1, *w.shape.dimensions)})"
        rule("C1", rank >= 2 and not is_bare, f"lhs must have {named}", way)
        rule("C27", same_element_type(x, w), "lhs and rhs must have the same element type")
        numbers = checked_numbers(rule, given_numbers, rank)
        counts = _checked_groups(rule, x.shape, w.shape, numbers, groups)
        window = _checked_window(rule, given, x.shape, w.shape, numbers)
        element = preferred_type(rule, x.shape.element_type, preferred_element_type)
        precisions = precision_attribute(rule, precision_config, x.builder.context, "C24", "I19")
    shape = Shape(element, numbers.result_dimensions(x.shape, w.shape, window, counts[1]))
    return x.builder.emit(
        "stablehlo.convolution",
        [x, w],
        shape,
        _attributes(x.builder.context, window, numbers, counts) | precisions,
    )


def _checked_groups(
    rule: Rules, x: Shape, w: Shape, numbers: ConvDimensionNumbers, groups: tuple[int, int]
) -> tuple[int, int]:
    """C10, C11, C14 to C16, C21 to C23: the groups, and the features and the batch that they divide."""
    features, batches = rule.integer("feature_group_count", groups[0]), rule.integer("batch_group_count", groups[1])
    rule.operands.update(feature_group_count=features, batch_group_count=batches)
    rule("C21", features > 0, f"feature_group_count must be at least 1, not {features}")
    rule("C22", batches > 0, f"batch_group_count must be at least 1, not {batches}")
    rule("C23", features == 1 or batches == 1, "feature_group_count or batch_group_count must be 1")
    batch, inputs = x.dimensions[numbers.input_batch_dimension], x.dimensions[numbers.input_feature_dimension]
    outputs = w.dimensions[numbers.kernel_output_feature_dimension]
    seen = w.dimensions[numbers.kernel_input_feature_dimension]
    rule("C10", batch % batches == 0, f"batch_group_count {batches} must divide the batch of {batch}")
    rule("C11", inputs % features == 0, f"feature_group_count {features} must divide the {inputs} features of lhs")
    wanted = f"rhs must have {inputs // features} input features, as lhs has in each group, not {seen}"
    rule("C14", seen == inputs // features, wanted)
    rule("C15", outputs % batches == 0, f"batch_group_count {batches} must divide the {outputs} output features")
    rule("C16", outputs % features == 0, f"feature_group_count {features} must divide the {outputs} output features")
    return features, batches


def _checked_window(rule: Rules, given: GivenWindow, x: Shape, w: Shape, numbers: ConvDimensionNumbers) -> Window:
    """C2 to C9: numbers for each spatial dimension, the padding in numbers too."""
    count = x.rank - 2
    strides = checked_sizes(rule, "window_strides", given.strides, count, ("C2", "C3"))
    lhs_dilation = checked_sizes(rule, "lhs_dilation", given.lhs_dilation, count, ("C5", "C6"))
    rhs_dilation = checked_sizes(rule, "rhs_dilation", given.rhs_dilation, count, ("C7", "C8"))
    reversal = (False,) * count if given.reversal is None else rule.truths("window_reversal", given.reversal)
    rule("C9", len(reversal) == count, f"window_reversal must have a truth value for each of {count} dimensions")
    sizes = [w.dimensions[d] for d in numbers.kernel_spatial_dimensions]
    rule("", all(sizes), "the window must have at least one element along each dimension")
    window = Window(strides, lhs_dilation, rhs_dilation, reversal)
    inputs = [x.dimensions[d] for d in numbers.input_spatial_dimensions]
    return window._replace(padding=checked_padding(rule, given.padding, window, inputs, sizes))


def _attributes(
    context: ir.Context, window: Window, numbers: ConvDimensionNumbers, groups: tuple[int, int]
) -> dict[str, object]:
    with context:
        padding = ir.DenseElementsAttr.get(
            np.array(window.padding, dtype=np.int64).reshape(-1, 2), type=ir.IntegerType.get_signless(64)
        )
        reversal = ir.DenseBoolArrayAttr.get(list(window.reversal))
    return {
        "window_strides": window.strides,
        "padding": padding,
        "lhs_dilation": window.lhs_dilation,
        "rhs_dilation": window.rhs_dilation,
        "window_reversal": reversal,
        "dimension_numbers": numbers.attribute(context),
        "feature_group_count": groups[0],
        "batch_group_count": groups[1],
    }
