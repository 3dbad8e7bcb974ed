"""Scaled dot product attention, spelled so that `stablexla-find-attention` makes one kernel of it, and its gradient.

All share: scores = scale * query @ key^T + mask, in f32 for halves; weights = softmax(scores), 0 in rows that are all
masked; result = weights @ value. Several heads of queries may share one of keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn.attention.flex_attention import _vmap_for_bhqkv
from torch.utils import _pytree as pytree

import stablexla as sx
from stablexla.interop.torch.call import (
    Call,
    broadcast,
    broadcast_sizes,
    convert,
    full_like,
    kept,
    reduced,
    total,
    wide,
    zeros_like,
)
from stablexla.interop.torch.decompositions import traced
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.random import scaled_at_random


def _product(lhs: sx.XlaOp, rhs: sx.XlaOp, contracted: tuple[int, int]) -> sx.XlaOp:
    """Return a product of matrices [..., i, j], in f32 for halves; `lhs` may have a dimension of heads that share one.

    Args:
        contracted: the dimension of each, -1 or -2.
    """
    batches = range(rhs.shape.rank - 2)
    of_lhs, of_rhs = (lhs.shape.rank + contracted[0],), (rhs.shape.rank + contracted[1],)
    numbers = sx.DotDimensionNumbers(of_lhs, of_rhs, batches, batches)
    return sx.dot_general(lhs, rhs, numbers, preferred_element_type=wide(lhs).element_type)


def _summed_product(lhs: sx.XlaOp, rhs: sx.XlaOp, batch_rank: int) -> sx.XlaOp:
    """Return lhs^T @ rhs of matrices [..., i, j], in f32 for halves, summed over heads behind the batch."""
    batches, summed = range(batch_rank), range(batch_rank, lhs.shape.rank - 1)
    numbers = sx.DotDimensionNumbers(summed, summed, batches, batches)
    return sx.dot_general(lhs, rhs, numbers, preferred_element_type=wide(lhs).element_type)


def _grouped(x: sx.XlaOp, heads: int, trailing: int = 2) -> sx.XlaOp:
    """Return an array [..., heads, i, j] with the heads that share one of `heads` in a dimension of their own.

    Args:
        trailing: the number of dimensions behind the heads.
    """
    *batch, own = x.shape.dimensions[: x.shape.rank - trailing]
    rest = x.shape.dimensions[x.shape.rank - trailing :]
    groups = (heads, own // heads) if own > 1 else (1, 1)
    return sx.reshape(x, (*batch, *groups, *rest))


def _scores(
    call: Call, query: sx.XlaOp, key: sx.XlaOp, mask: sx.XlaOp | None, is_causal: bool, scale: float | None
) -> sx.XlaOp:
    """Return the scores; a causal mask hides keys behind a query's place, counted from the first one."""
    made = sx.mul(_product(query, key, (-1, -1)), _scale(query, scale))
    sizes = made.shape.dimensions
    hidden = full_like(made, -math.inf)
    if is_causal:
        rows, columns = (call.iota("s32", sizes, len(sizes) - n) for n in (2, 1))
        made = sx.select(sx.ge(rows, columns), made, hidden)
    if mask is not None and mask.element_type.is_pred:
        made = sx.select(broadcast(mask, sizes), made, hidden)
    elif mask is not None:
        made = sx.add(made, broadcast(convert(mask, made.element_type), sizes))
    return made


def _scale(query: sx.XlaOp, scale: float | None) -> float:
    return 1 / math.sqrt(max(query.shape.dimensions[-1], 1)) if scale is None else scale


def _softmax(scores: sx.XlaOp, is_masked: bool) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return the softmax of rows, and the logarithms of their sums of powers; both are 0 for rows of -inf alone."""
    sizes, last = scores.shape.dimensions, (scores.shape.rank - 1,)
    largest = reduced(scores, -math.inf, sx.max, last)
    if is_masked:
        largest = sx.select(sx.eq(largest, -math.inf), zeros_like(largest), largest)
    powers = sx.exp(sx.sub(scores, broadcast(kept(largest, sizes, last), sizes)))
    sums = total(powers, last)
    divisors = sx.select(sx.eq(sums, 0.0), full_like(sums, 1.0), sums) if is_masked else sums
    weights = sx.div(powers, broadcast(kept(divisors, sizes, last), sizes))
    return weights, sx.add(largest, sx.log(divisors))


def _attention(
    call: Call,
    query: sx.XlaOp,
    key: sx.XlaOp,
    value: sx.XlaOp,
    mask: sx.XlaOp | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return the result, and the logarithms of the sums of powers."""
    is_flat = query.shape.rank == 2
    *batch, _, _ = broadcast_sizes(*((*x.shape.dimensions[:-3], 1, 1) for x in (query, key, value)))
    query, key, value = (_batched(x, batch) for x in (query, key, value))
    (heads, length), shared = query.shape.dimensions[-3:-1], key.shape.dimensions[-3]
    if shared != value.shape.dimensions[-3]:
        key, value, shared = _repeated(key, heads), _repeated(value, heads), heads
    if shared != heads:
        query = _grouped(query, shared)
        if mask is not None and mask.shape.rank > 2:
            mask = _grouped(mask, shared)
    scores = _scores(call, query, key, mask, is_causal, scale)
    weights, sums = _softmax(scores, mask is not None or not scores.shape.dimensions[-1])
    if dropout_p:
        weights = scaled_at_random(call, weights, dropout_p)
    weights = convert(weights, query.element_type)
    made = _product(weights, value, (-1, -2))
    leading = () if is_flat else (*batch, heads)
    return sx.reshape(made, (*leading, length, made.shape.dimensions[-1])), sx.reshape(sums, (*leading, length))


def _batched(x: sx.XlaOp, batch: Sequence[int]) -> sx.XlaOp:
    """Return matrices [batch, heads, i, j]; a single one has a head."""
    if x.shape.rank == 2:
        x = sx.reshape(x, (1, *x.shape.dimensions))
    return broadcast(x, (*batch, *x.shape.dimensions[-3:]))


def _repeated(x: sx.XlaOp, heads: int) -> sx.XlaOp:
    """Return matrices of which each head stands for several that follow each other."""
    *batch, own, rows, columns = x.shape.dimensions
    rank = len(batch)
    sizes = (*batch, own, heads // own, rows, columns)
    spread = sx.broadcast_in_dim(x, sizes, (*range(rank + 1), rank + 2, rank + 3))
    return sx.reshape(spread, (*batch, heads, rows, columns))


@aten("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    call: Call,
    query: sx.XlaOp,
    key: sx.XlaOp,
    value: sx.XlaOp,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: sx.XlaOp | None,
    scale: float | None,
) -> tuple[sx.XlaOp, sx.XlaOp]:
    return _attention(call, query, key, value, attn_mask, dropout_p, is_causal, scale)


@aten("aten.scaled_dot_product_attention.default")
def scaled_dot_product_attention(
    call: Call,
    query: sx.XlaOp,
    key: sx.XlaOp,
    value: sx.XlaOp,
    attn_mask: sx.XlaOp | None,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None,
    enable_gqa: bool,
) -> sx.XlaOp:
    return _attention(call, query, key, value, attn_mask, dropout_p, is_causal, scale)[0]


@aten("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    call: Call,
    gradient: sx.XlaOp,
    query: sx.XlaOp,
    key: sx.XlaOp,
    value: sx.XlaOp,
    result: sx.XlaOp,
    sums: sx.XlaOp,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: sx.XlaOp | None,
    scale: float | None,
) -> tuple[sx.XlaOp, sx.XlaOp, sx.XlaOp]:
    """With weights P and their gradient dP = dO V^T, that of the scores is P * (dP - rowsum(dO * O))."""
    type, heads = query.element_type, key.shape.dimensions[-3]
    if heads != query.shape.dimensions[-3]:
        query, gradient, result = (_grouped(x, heads) for x in (query, gradient, result))
        sums = _grouped(sums, heads, 1)
        if attn_mask is not None and attn_mask.shape.rank > 2:
            attn_mask = _grouped(attn_mask, heads)
    scores = _scores(call, query, key, attn_mask, is_causal, scale)
    sizes = scores.shape.dimensions

    def columns(x: sx.XlaOp) -> sx.XlaOp:
        return broadcast(sx.reshape(x, (*x.shape.dimensions, 1)), sizes)

    weights = sx.exp(sx.sub(scores, columns(sums)))
    to_value = _summed_product(convert(weights, type), gradient, 2)
    rows = total(sx.mul(wide(gradient), wide(result)), (result.shape.rank - 1,))
    to_scores = sx.mul(weights, sx.sub(_product(gradient, value, (-1, -1)), columns(rows)))
    to_scores = convert(sx.mul(to_scores, _scale(query, scale)), type)
    to_query = sx.reshape(_product(to_scores, key, (-1, -2)), call.dimensions)
    return to_query, _summed_product(to_scores, query, 2), to_value


# ---- scores that functions of the user's change ----


def _changed_scores(scores: torch.Tensor, change: Any, mask: Any, buffers: Any, mask_buffers: Any) -> torch.Tensor:
    """Map functions of one score and its place over all scores, in PyTorch: as `math_attention` does."""
    places = [torch.arange(size) for size in scores.shape]
    change = _vmap_for_bhqkv(change, prefix=(0,), suffix=(None,) * len(buffers))
    mask = _vmap_for_bhqkv(mask, prefix=(), suffix=(None,) * len(mask_buffers))
    with TransformGetItemToIndex():
        return torch.where(mask(*places, *mask_buffers), change(scores, *places, *buffers), -math.inf)


@aten("higher_order.flex_attention")
def flex_attention(
    call: Call,
    query: sx.XlaOp,
    key: sx.XlaOp,
    value: sx.XlaOp,
    change: Any,
    block_mask: Sequence[Any],
    scale: float,
    options: dict[str, Any],
    buffers: Sequence[Any] = (),
    mask_buffers: Sequence[Any] = (),
) -> list[sx.XlaOp]:
    """It has no gradient on CPUs, where PyTorch refuses it."""
    batch, heads = query.shape.dimensions[:2]
    key, value = (_repeated(_batched(x, [batch]), heads) for x in (key, value))
    given = (_scores(call, query, key, None, False, scale), change, block_mask[-1], buffers, mask_buffers)
    graph = traced(_changed_scores, given, {})
    (scores,) = call.translator.run(graph, [x for x in pytree.tree_leaves(given) if isinstance(x, sx.XlaOp)])
    weights, sums = _softmax(scores, is_masked=True)
    largest = reduced(scores, -math.inf, sx.max, (3,))
    sums = sx.select(sx.eq(largest, -math.inf), largest, sums)
    made = _product(convert(weights, query.element_type), value, (-1, -2))
    return [made, sx.mul(sums, 1 / math.log(2)), sx.mul(largest, 1 / math.log(2))]  # counted in powers of 2
