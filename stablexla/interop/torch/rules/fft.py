"""Discrete Fourier transforms over any dimensions in any order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, convert, full_like, place
from stablexla.interop.torch.registry import aten
from stablexla.ops.fft import FftType


@aten("aten._fft_c2c.default")
def complex_to_complex(call: Call, x: XlaOp, dim: Sequence[int], normalization: int, forward: bool) -> XlaOp:
    lengths = [x.shape.dimensions[d] for d in dim]
    return _scaled(_complex(x, dim, forward), normalization, lengths, () if forward else lengths)


@aten("aten._fft_r2c.default")
def real_to_complex(call: Call, x: XlaOp, dim: Sequence[int], normalization: int, onesided: bool) -> XlaOp:
    lengths = [x.shape.dimensions[d] for d in dim]
    if onesided:
        made = _complex(_transformed(x, dim[-1:], "RFFT", lengths[-1:]), dim[:-1], True)
    else:
        made = _complex(convert(x, call.type), dim, True)
    return _scaled(made, normalization, lengths)


@aten("aten._fft_c2r.default")
def complex_to_real(call: Call, x: XlaOp, dim: Sequence[int], normalization: int, last_dim_size: int) -> XlaOp:
    """The last of the dimensions is the halved one, and is transformed last."""
    lengths = [*(x.shape.dimensions[d] for d in dim[:-1]), last_dim_size]
    half = sx.slice_in_dim(x, 0, last_dim_size // 2 + 1, 1, place(dim[-1], x.shape.rank))
    made = _transformed(_complex(half, dim[:-1], False), dim[-1:], "IRFFT", lengths[-1:])
    return _scaled(made, normalization, lengths, lengths)


def _complex(x: XlaOp, dim: Sequence[int], forward: bool) -> XlaOp:
    """Return the transform over complex dimensions, up to three at once."""
    for first in range(0, len(dim), 3):
        some = dim[first : first + 3]
        x = _transformed(x, some, "FFT" if forward else "IFFT", [x.shape.dimensions[d] for d in some])
    return x


def _transformed(x: XlaOp, dim: Sequence[int], kind: FftType, lengths: Sequence[int]) -> XlaOp:
    """Return XLA's transform over dimensions that lie anywhere; the inverse ones divide by the lengths."""
    rank = x.shape.rank
    chosen = [place(d, rank) for d in dim]
    order = [*(d for d in range(rank) if d not in chosen), *chosen]
    made = sx.fft(sx.transpose(x, order), kind, tuple(lengths))
    return sx.transpose(made, [order.index(d) for d in range(rank)])


def _scaled(x: XlaOp, normalization: int, lengths: Sequence[int], divided: Sequence[int] = ()) -> XlaOp:
    """Return a transform with the factor of the normalization, where it has been divided by lengths."""
    factor = {0: 1.0, 1: 1 / sqrt(prod(lengths)), 2: 1 / prod(lengths)}[normalization] * prod(divided)
    return x if factor == 1 else sx.mul(x, full_like(x, factor))
