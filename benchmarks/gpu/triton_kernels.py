"""Softmax, layer norm and a product in Triton: a block of threads a row, and tiles of 128 x 128 with f32 sums.

Triton has no types, and may not be installed where types are checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _softmax(x, out, columns, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, WIDTH)
    values = tl.load(x + row + at, mask=at < columns, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + at, (powers / tl.sum(powers, axis=0)).to(out.dtype.element_ty), mask=at < columns)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _layer_norm(x, scale, offset, out, columns, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, WIDTH)
    inside = at < columns
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, values - tl.sum(values, axis=0) / columns, 0.0)
    spread = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    factor = tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    moved = tl.load(offset + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, (centred * spread * factor + moved).to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _product(a, b, out, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, G: tl.constexpr):  # type: ignore[no-untyped-def]
    # Neighbouring blocks work on G rows of tiles, whose factors the L2 cache then holds.
    number, across = tl.program_id(0), tl.cdiv(n, N)
    group = number // (G * across)
    high = min(tl.cdiv(m, M) - group * G, G)
    row = (group * G + number % (G * across) % high) * M + tl.arange(0, M)
    column = number % (G * across) // high * N + tl.arange(0, N)
    depth = tl.arange(0, K)
    from_a = a + row[:, None] * k + depth[None, :]
    from_b = b + depth[:, None] * n + column[None, :]
    sums = tl.zeros((M, N), dtype=tl.float32)
    for _ in range(0, k, K):
        sums += tl.dot(tl.load(from_a), tl.load(from_b))
        from_a += K
        from_b += K * n
    tl.store(out + row[:, None] * n + column[None, :], sums.to(out.dtype.element_ty))


def softmax(x: Any) -> Any:
    """Of the rows of a matrix."""
    out = torch.empty_like(x)
    _softmax[(x.shape[0],)](x, out, x.shape[1], WIDTH=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return out


def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    """Of the rows of a matrix."""
    out, columns = torch.empty_like(x), x.shape[1]
    _layer_norm[(x.shape[0],)](x, scale, offset, out, columns, WIDTH=triton.next_power_of_2(columns), num_warps=8)
    return out


def product(a: Any, b: Any) -> Any:
    """Of matrices whose sizes are whole tiles."""
    (m, k), n = a.shape, b.shape[1]
    side, deep = min(128, m), min(64, k)
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(m, side) * triton.cdiv(n, side),)
    _product[grid](a, b, out, m, n, k, M=side, N=side, K=deep, G=8, num_warps=8, num_stages=3)
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "softmax-bf16": softmax,
    "layer-norm": layer_norm,
    "layer-norm-bf16": layer_norm,
    "matmul-bf16": product,
    "matmul-f16": product,
    "matmul-bf16-large": product,
}
