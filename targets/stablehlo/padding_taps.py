"""Pass that drops the taps of a convolution's window that lie in the padding at every position.

A window of 3 x 3 taps and dilation 12 on an image of 10 x 10 has one tap that meets the image, and eight that multiply
padding: so do the dilated (atrous) convolutions of DeepLab's pyramid pooling. What is left can be a product.

A weight that is infinite or NaN makes NaN of the zero that it multiplies. So where weights are not known, the results
get the products of dropped weights and zero; finite constants and integers need none.
"""

from __future__ import annotations

from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import Convolution, SpatialDimension
from stablexla.dialects.choices import Gate
from stablexla.dialects.constants import constant_array
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.erasing import erase
from stablexla.dialects.held_arrays import can_be_held, elements_attribute
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of

CONVOLUTION = "stablehlo.convolution"
FEWEST = Gate("padding-taps.fewest-positions", 8, eager=1)
"""Positions of a window from which taps of unknown weights are dropped: all weights are read for the zeros."""
_MOST_LOOKED_AT = 1 << 20


@module_pass(
    "stablexla-drop-padding-taps",
    "drops taps of convolutions that meet nothing but padding",
    side="stablehlo",
    acts_on=for_any([CONVOLUTION]),
)
def drop_padding_taps(module: ir.Module) -> None:
    """Shrink windows of convolutions to the taps from the first to the last that meet an element of the array."""
    for op in operations_of(module, CONVOLUTION):
        if not all(value.type.has_static_shape for value in (*op.operands, *op.results)):
            continue
        numbers = Convolution.read(op.attributes)
        (given, weights), (result,) = op.operands, op.results
        taps = [weights.type.shape[s.kernel] for s in numbers.spatial]
        kept = [
            _kept(s, given.type.shape[s.input], n, result.type.shape[s.output])
            for s, n in zip(numbers.spatial, taps, strict=True)
        ]
        if kept == [range(n) for n in taps] or not all(kept):
            continue
        with op.location, ir.InsertionPoint(op):
            made = _without(op, numbers, kept)
        if made is not None:
            result.replace_all_uses_with(made)
            erase(op)


def _kept(window: SpatialDimension, extent: int, taps: int, positions: int) -> range:
    """Return the taps from the first to the last that meet an element, in the order of the array."""
    if positions * taps > _MOST_LOOKED_AT:
        return range(taps)
    starts = np.arange(positions) * window.stride - window.low
    places = starts[:, None] + np.arange(taps) * window.rhs_dilation
    meets = (places >= 0) & (places <= (extent - 1) * window.lhs_dilation) & (places % window.lhs_dilation == 0)
    found = np.flatnonzero(meets.any(axis=0))
    return range(int(found[0]), int(found[-1]) + 1) if found.size else range(0)


def _without(op: Any, numbers: Convolution, kept: list[range]) -> Any:
    """Emit a convolution of the taps that are kept; None where dropping the others gains nothing."""
    weights, result = op.operands[1], op.results[0]
    box = [slice(0, extent) for extent in weights.type.shape]
    padding = []
    for s, taps in zip(numbers.spatial, kept, strict=True):
        count = weights.type.shape[s.kernel]
        after = count - taps.stop
        padding.append((s.low - taps.start * s.rhs_dilation, s.high - after * s.rhs_dilation))
        box[s.kernel] = slice(after, count - taps.start) if s.reversed else slice(taps.start, taps.stop)
    element = BY_MLIR[str(weights.type.element_type)]
    constant = constant_array(weights)
    has_nan = element.is_float or element.is_complex
    is_exact = not has_nan or (constant is not None and _is_finite(constant))
    positions = prod(n for d, n in enumerate(result.type.shape) if d != numbers.output_feature)
    if not is_exact and (element.is_complex or positions < FEWEST()):
        return None
    attributes = {name: op.attributes[name] for name in op.attributes} | {"padding": hlo.table(padding)}
    if constant is not None and (constant.dtype.isbuiltin == 1 or can_be_held(constant)):
        part = _constant(constant[tuple(box)], weights.type)
    else:
        part = _sliced(weights, box)
    made = hlo.emit(CONVOLUTION, [op.operands[0], part], [result.type], attributes)
    if is_exact:
        return made
    zeros = hlo.convert(_zeros(weights, numbers, box), result.type.element_type)
    return hlo.elementwise("add", made, hlo.broadcast(zeros, result.type.shape, [numbers.output_feature]))


def _constant(part: np.ndarray, like: Any) -> Any:
    part = np.array(part, order="C")  # what it is cut from may be borrowed
    type_ = hlo.tensor(like, part.shape)
    return hlo.emit("stablehlo.constant", [], [type_], {"value": elements_attribute(part, type_)})


def _sliced(weights: Any, box: list[slice]) -> Any:
    attributes = {
        "start_indices": hlo.i64s(each.start for each in box),
        "limit_indices": hlo.i64s(each.stop for each in box),
        "strides": hlo.i64s(1 for _ in box),
    }
    type_ = hlo.tensor(weights.type, [each.stop - each.start for each in box])
    return hlo.emit("stablehlo.slice", [weights], [type_], attributes)


def _zeros(weights: Any, numbers: Convolution, box: list[slice]) -> Any:
    """Emit what the dropped weights of each feature add: zero, or NaN where one of them is not finite."""
    dims = sorted(s.kernel for s in numbers.spatial)
    is_kept = np.zeros([weights.type.shape[d] for d in dims], bool)
    is_kept[tuple(box[d] for d in dims)] = True
    mask = hlo.broadcast(hlo.array(is_kept), weights.type.shape, dims)
    zero = hlo.constant(weights.type, "0.0")
    products = hlo.select(mask, zero, hlo.elementwise("multiply", weights, zero))
    others = [d for d in range(weights.type.rank) if d != numbers.kernel_output]
    return hlo.reduce(products, hlo.number(weights.type, "0"), others, "add")


def _is_finite(array: np.ndarray) -> bool:
    is_small = array.dtype.kind == "V" or array.dtype.itemsize < 4  # such as bfloat16, of which numpy asks nothing
    return bool(np.isfinite(array.astype(np.float32) if is_small else array).all())
