"""Views and copies: new sizes, orders, parts and concatenations."""

from __future__ import annotations

from collections.abc import Sequence

import stablexla as sx
from stablexla.interop.torch.call import Call, broadcast
from stablexla.interop.torch.registry import aten


@aten(
    "aten.alias.default", "aten.clone.default", "aten.detach.default", "aten.contiguous.default", "prims.view_of.default",
    "aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.positive.default", "aten._to_copy.default",
    "aten.to.dtype", "prims.convert_element_type.default",
)  # fmt: skip
def same(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return x


@aten(
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.squeeze.default",
    "aten.squeeze.dim", "aten.squeeze.dims", "aten.unsqueeze.default", "aten.flatten.using_ints",
)  # fmt: skip
def view(call: Call, x: sx.XlaOp, *_: object) -> sx.XlaOp:
    return sx.reshape(x, call.dimensions)


@aten("aten.expand.default")
def expand(call: Call, x: sx.XlaOp, size: Sequence[int]) -> sx.XlaOp:
    return broadcast(x, call.dimensions)


@aten("aten.permute.default")
def permute(call: Call, x: sx.XlaOp, dims: Sequence[int]) -> sx.XlaOp:
    return sx.transpose(x, [d % x.shape.rank for d in dims]) if dims else x
