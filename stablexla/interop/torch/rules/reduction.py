"""Sums, means, extremes and norms over dimensions, and running ones."""

from __future__ import annotations

from collections.abc import Sequence

import stablexla as sx
from stablexla.interop.torch.call import Call, convert, places, total, wide
from stablexla.interop.torch.registry import aten


@aten("aten.sum.default", "aten.sum.dim_IntList")
def sum(call: Call, x: sx.XlaOp, dim: Sequence[int] | None = None, keepdim: bool = False) -> sx.XlaOp:
    return total(wide(convert(x, call.type)), places(dim, x.shape.rank), keepdim)
