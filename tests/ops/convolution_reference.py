"""A convolution written down with numpy as its definition reads: lhs dilated, padded and cut, then tap by tap."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import stablexla as sx


def convolve(
    lhs: np.ndarray,
    rhs: np.ndarray,
    numbers: sx.ConvDimensionNumbers,
    *,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    reversal: Sequence[bool] | None = None,
    feature_groups: int = 1,
    batch_groups: int = 1,
) -> np.ndarray:
    """The convolution, in the type of the operands (give wide ones)."""
    n = numbers
    count = len(tuple(n.input_spatial_dimensions))
    ones = (1,) * count
    x = lhs.transpose(n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions)
    w = rhs.transpose(n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, *n.kernel_spatial_dimensions)
    x = _padded(x, padding, lhs_dilation or ones)
    w = w[(slice(None), slice(None), *(slice(None, None, -1 if r else 1) for r in reversal or (False,) * count))]
    groups = max(feature_groups, batch_groups)
    parts = []
    for g in range(groups):
        outputs = w.shape[0] // groups
        of_group = w[g * outputs : (g + 1) * outputs]
        axis = 1 if feature_groups > 1 else 0
        size = x.shape[axis] // groups
        seen = x.take(range(g * size, (g + 1) * size), axis) if groups > 1 else x
        parts.append(_one_group(seen, of_group, strides, rhs_dilation or ones))
    made = np.concatenate(parts, axis=1)
    order = [n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions]
    return np.moveaxis(made, range(made.ndim), order)


def _padded(x: np.ndarray, padding: Sequence[tuple[int, int]], dilation: Sequence[int]) -> np.ndarray:
    for axis, ((low, high), step) in enumerate(zip(padding, dilation, strict=True), start=2):
        size = x.shape[axis]
        spread = np.zeros([*x.shape[:axis], (size - 1) * step + 1 if size else 0, *x.shape[axis + 1 :]], x.dtype)
        spread[(*[slice(None)] * axis, slice(None, None, step))] = x
        length = spread.shape[axis]
        pads = [(0, 0)] * x.ndim
        pads[axis] = (max(low, 0), max(high, 0))
        x = np.pad(spread, pads)
        x = x[(*[slice(None)] * axis, slice(max(0, -low), max(0, max(low, 0) + length + max(high, 0) - max(0, -high))))]
    return x


def _one_group(x: np.ndarray, w: np.ndarray, strides: Sequence[int], dilation: Sequence[int]) -> np.ndarray:
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    sizes = [(n - span) // s + 1 if span <= n else 0 for n, span, s in zip(x.shape[2:], spans, strides, strict=True)]
    total = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    for tap in itertools.product(*map(range, w.shape[2:])):
        places = [
            slice(t * d, t * d + s * (o - 1) + 1 if o else t * d, s)
            for t, d, s, o in zip(tap, dilation, strides, sizes, strict=True)
        ]
        under = x[(slice(None), slice(None), *places)]
        weights = w[(slice(None), slice(None), *tap)]
        total += np.moveaxis(np.tensordot(under, weights, axes=([1], [1])), -1, 1)
    return total


def wide(array: Any) -> np.ndarray:
    """The array in a type that holds exact products and good sums."""
    array = np.asarray(array)
    if np.issubdtype(array.dtype, np.complexfloating):
        return array.astype(np.complex128)
    if array.dtype.kind in "iub":
        return array.astype(np.int64)
    return array.astype(np.float64)
