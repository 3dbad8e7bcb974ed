"""The three batch normalizations, along any dimension."""

from __future__ import annotations

from math import prod

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import Writer, family

normalization = family("normalization")


def _operands(w: Writer) -> tuple[Value, int, list[Value]] | None:
    """An array, the dimension of its features, and four vectors for them: the last is above 0."""
    if w.whole or w.depth:
        return None
    x = w.pick(lambda v: v.element in ("f32", "f64") and prod(v.shape) > 0, least_rank=1)
    if x is None:
        return None
    place = w.random.randrange(len(x.shape))
    size = (x.shape[place],)
    x = w.small(w.finite(x))
    vectors = [w.emit(f"stablehlo.iota dim = 0 : {tensor(size, x.element)}", size, x.element) for _ in range(2)]
    return x, place, [*vectors, w.splat(1, size, x.element), w.splat(w.random.randint(1, 3), size, x.element)]


def _attributes(place: int) -> str:
    return f"{{epsilon = 1.000000e-03 : f32, feature_index = {place} : i64}}"


@normalization.statement(0.4)
def batch_norm_training(w: Writer) -> list[Value] | None:
    drawn = _operands(w)
    if drawn is None:
        return None
    x, place, (scale, offset, *_) = drawn
    return w.emit_several(
        f'"stablehlo.batch_norm_training"({x.name}, {scale.name}, {offset.name}) {_attributes(place)}'
        f" : ({x.type}, {scale.type}, {offset.type}) -> ({x.type}, {scale.type}, {scale.type})",
        [(x.shape, x.element), (scale.shape, x.element), (scale.shape, x.element)],
    )


@normalization.statement(0.4)
def batch_norm_inference(w: Writer) -> Value | None:
    drawn = _operands(w)
    if drawn is None:
        return None
    x, place, vectors = drawn
    names, types = ", ".join(v.name for v in (x, *vectors)), ", ".join(v.type for v in (x, *vectors))
    text = f'"stablehlo.batch_norm_inference"({names}) {_attributes(place)} : ({types}) -> {x.type}'
    return w.emit(text, x.shape, x.element)


@normalization.statement(0.4)
def batch_norm_grad(w: Writer) -> list[Value] | None:
    drawn = _operands(w)
    if drawn is None:
        return None
    x, place, (scale, mean, _, variance) = drawn
    y = w.small(w.finite(w.same(x)))
    operands = (x, scale, mean, variance, y)
    names, types = ", ".join(v.name for v in operands), ", ".join(v.type for v in operands)
    return w.emit_several(
        f'"stablehlo.batch_norm_grad"({names}) {_attributes(place)} : ({types})'
        f" -> ({x.type}, {scale.type}, {scale.type})",
        [(x.shape, x.element), (scale.shape, x.element), (scale.shape, x.element)],
    )
