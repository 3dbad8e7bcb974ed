"""Sums of an operation in a wider type, to decide whether a result's error exceeds its bound."""

from __future__ import annotations

import re
from math import log2
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.lazy_dataclass import dataclass

Array = npt.NDArray[Any]
# Units of the type that is summed in, times the logarithm of the number of terms, times the sum of their magnitudes.
UNITS = 8
_REDUCED = re.compile(r"stablehlo\.reduce\(.*applies stablehlo\.add across dimensions = \[([\d, ]*)\]")
_CONTRACTED = re.compile(
    r"stablehlo\.dot_general (?:.*batching_dims = \[([\d, ]*)\] x \[([\d, ]*)\], )?"
    r".*contracting_dims = \[([\d, ]*)\] x \[([\d, ]*)\]"
)
_UNIT = {np.dtype("f8"): 2.0**-53, np.dtype("f4"): 2.0**-24, np.dtype("f2"): 2.0**-24}
_UNIT[np.dtype(ml_dtypes.bfloat16)] = 2.0**-24


@dataclass(frozen=True)
class ExactSums:
    """Sums, sums of the terms' magnitudes, and numbers of terms."""

    values: Array
    magnitudes: Array
    terms: int


def exact_sums(text: str, operands: list[Array]) -> ExactSums | None:
    """Return the sums of a reduction by addition or a contraction; None for other operations and element types.

    Args:
        text: the operation, as MLIR spells it.
        operands: its operands.
    """
    if not operands or any(o.dtype not in _UNIT for o in operands) or "algorithm" in text:
        return None
    wide = [o.astype(np.longdouble if o.dtype == np.dtype("f8") else np.float64) for o in operands]
    reduced, contracted = _REDUCED.search(text), _CONTRACTED.search(text)
    with np.errstate(all="ignore"):
        if reduced is not None and len(wide) == 2:
            axes = tuple(_numbers(reduced[1]))
            count = 1 + int(np.prod([wide[0].shape[d] for d in axes], dtype=np.int64))
            both = [np.asarray(f(wide[0]).sum(axes) + f(wide[1])) for f in (np.asarray, np.abs)]
            return ExactSums(both[0], both[1], count)
        if contracted is not None and len(wide) == 2:
            return _of_products(wide, [_numbers(group or "") for group in contracted.groups()])
    return None


def exceeds_error_bound(actual: Array, sums: ExactSums) -> Array:
    """Return which results differ from the exact sums by more than 8 u log2(n) of the magnitudes, and one rounding."""
    finfo: Any = ml_dtypes.finfo
    info = finfo(actual.dtype)
    with np.errstate(all="ignore"):
        allowed = UNITS * log2(sums.terms + 1) * _UNIT.get(actual.dtype, 2.0**-24) * sums.magnitudes.reshape(-1)
        values, found = sums.values.reshape(-1), actual.reshape(-1).astype(sums.values.dtype)
        allowed = allowed + float(info.eps) * np.abs(values) + float(info.smallest_subnormal)
        in_range = sums.magnitudes.reshape(-1) < float(info.max) / 4
        return np.asarray(in_range & ~(np.abs(found - values) <= allowed))


def _of_products(wide: list[Array], groups: list[list[int]]) -> ExactSums:
    left_batch, right_batch, left, right = groups
    names = iter(range(52))
    labels: list[list[int]] = [[-1] * w.ndim for w in wide]
    for i, j in (*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)):
        labels[0][i] = labels[1][j] = next(names)
    for side in labels:
        side[:] = [next(names) if name < 0 else name for name in side]
    free = [[n for d, n in enumerate(side) if d not in (*b, *c)] for side, b, c in
            zip(labels, (left_batch, right_batch), (left, right), strict=True)]  # fmt: skip
    result = [*(labels[0][d] for d in left_batch), *free[0], *free[1]]
    made = [np.asarray(np.einsum(f(wide[0]), labels[0], f(wide[1]), labels[1], result)) for f in (np.asarray, np.abs)]
    count = int(np.prod([wide[0].shape[d] for d in left], dtype=np.int64))
    return ExactSums(made[0], made[1], max(1, count))


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",") if n.strip()]
