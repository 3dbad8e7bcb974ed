"""Complex numbers: arithmetic, sums, and products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import add


def enter(name: str, summary: str, function: Callable[..., Any], *shapes: sx.Shape, **more: Any) -> None:
    add(f"complex-{name}", summary, shapes, function, **more)


N = sx.c64[1 << 20]
enter("add-1m", "x + y of 1048576", sx.add, N, N, numpy=np.add)
enter("multiply-1m", "x * y of 1048576", sx.mul, N, N, numpy=np.multiply)
enter("multiply-4096", "x * y of 4096", sx.mul, sx.c64[4096], sx.c64[4096], numpy=np.multiply)
enter("divide-1m", "x / y of 1048576", sx.div, N, N, numpy=np.divide)
enter("abs-1m", "|x| of 1048576", sx.abs, N, numpy=np.abs)
enter("exp-256k", "e^x of 262144", sx.exp, sx.c64[1 << 18], numpy=np.exp)
for axis, place in enumerate(("columns", "rows")):
    enter(
        f"sum-{place}",
        f"sums of the {place} of 1024x1024",
        lambda x, axis=axis: sx.reduce(x, 0.0, sx.add, [axis]),
        sx.c64[1024, 1024],
        numpy=lambda x, axis=axis: x.sum(axis),
        tolerance=1e-4,
    )
for name, element, left, right in (
    ("512", sx.c64, (512, 512), (512, 512)),
    ("double-512", sx.c128, (512, 512), (512, 512)),
    ("2048x64x64", sx.c64, (2048, 64), (64, 64)),
    ("matvec-2048", sx.c64, (2048, 2048), (2048,)),
    ("vecmat-2048", sx.c64, (2048,), (2048, 2048)),
):
    enter(
        f"matmul-{name}",
        f"{'x'.join(map(str, left))} by {'x'.join(map(str, right))}",
        sx.dot,
        *(element[left], element[right]),
        numpy=np.matmul,
        operations=8.0 * prod(left) * prod(right[1:]),
        peak="f64" if element is sx.c128 else "f32",
        tolerance=1e-4,
    )
