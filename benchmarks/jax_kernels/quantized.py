"""Rows by a weight that is read once, as stored: integers of 8 and 4 bits with scales, and short floats.

With a few rows all time goes into reading the weight: the share of the machine's bandwidth says how near a program is
to its limit. With those of a prompt it goes into the products, if the weight is not first written in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.traced import Draw, trace

SIZE, GROUP = 4096, 64
GROUPS = (SIZE // GROUP, SIZE)


def cast(x: Any, weight: Any) -> Any:
    return x @ weight.astype(x.dtype)


def scale_after(x: Any, weight: Any, scale: Any) -> Any:
    return (x @ weight.astype(x.dtype)) * scale


def scale_before(x: Any, weight: Any, scale: Any) -> Any:
    return x @ (weight.astype(x.dtype) * scale)


def scale_by_group(x: Any, weight: Any, scale: Any) -> Any:
    grouped = weight.astype(x.dtype).reshape(-1, GROUP, SIZE) * scale[:, None, :]
    return x @ grouped.reshape(SIZE, SIZE)


def packed_in_bytes(x: Any, weight: Any, scale: Any) -> Any:
    low, high = (weight & 15).astype(jnp.int8) - 8, (weight >> 4).astype(jnp.int8) - 8
    return scale_by_group(x, jnp.stack([low, high], 1).reshape(SIZE, SIZE), scale)


# 16 numbers that lie closer around 0, as NF4's do.
CODEBOOK = np.sign(np.arange(16) - 7) * (np.arange(16, dtype=np.float32) / 8 - 7 / 8) ** 2


def by_codebook(x: Any, weight: Any, scale: Any) -> Any:
    places = jnp.stack([weight & 15, weight >> 4], 1).reshape(SIZE, SIZE)
    return scale_by_group(x, jnp.asarray(CODEBOOK, x.dtype)[places], scale)


def arguments(draw: Draw, rows: int, element: Any, height: int, *scale: int) -> Sequence[Any]:
    """The rows, the weight as it is stored, and its scales."""
    whole = np.dtype(element).name in ("int8", "uint8", "int4")
    weight = draw.integers(8, height, SIZE, dtype=element) if whole else draw.normal(height, SIZE, dtype=element)
    return [draw.normal(rows, SIZE), weight, *([draw.normal(*scale)] if scale else [])]


INT4 = np.dtype(ml_dtypes.int4)
# By name: what it is, the function, the stored type, its rows, the shape of its scales.
FORMATS: dict[str, tuple[str, Any, Any, int, tuple[int, ...]]] = {
    "f32": ("f32", cast, np.float32, SIZE, ()),
    "bf16": ("bf16", cast, ml_dtypes.bfloat16, SIZE, ()),
    "f16": ("f16", cast, np.float16, SIZE, ()),
    "f8": ("f8e4m3fn", cast, ml_dtypes.float8_e4m3fn, SIZE, ()),
    "int8-after": ("int8, a scale for each column after the product", scale_after, np.int8, SIZE, (SIZE,)),
    "int8-before": ("int8, a scale for each column before the product", scale_before, np.int8, SIZE, (SIZE,)),
    "int8": ("int8 in groups of 64", scale_by_group, np.int8, SIZE, GROUPS),
    "int4": ("int4 in groups of 64", scale_by_group, INT4, SIZE, GROUPS),
    "codebook": (
        "places in a codebook of 16, two to a byte, in groups of 64",
        by_codebook,
        np.uint8,
        SIZE // 2,
        GROUPS,
    ),
    "int4-packed": ("int4 two to a byte, in groups of 64", packed_in_bytes, np.uint8, SIZE // 2, GROUPS),
}

# The numbers of rows, where not one alone: of 128 the weight is dequantised as it is packed.
ROWS = {
    "f32": (1, 128),
    "bf16": (1, 128),
    "int8-after": (1, 16),
    "int8-before": (1, 128),
    "int8": (1, 128),
    "int4-packed": (1, 16, 128),
}

for name, (stored, function, element, height, scale) in FORMATS.items():
    for rows in ROWS.get(name, (1,)):
        trace(
            f"weight-{name}-{rows}x{SIZE}",
            f"{rows} row{'s' if rows > 1 else ''} by a weight of {SIZE}x{SIZE}, {stored}",
            function,
            lambda draw, given=(rows, element, height, *scale): arguments(draw, *given),
            tolerance=1e-4,
        )
