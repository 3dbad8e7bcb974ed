"""Convolutions of one to three spatial dimensions, with everything that windows and groups can have."""

from __future__ import annotations

from math import prod

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import COARSE, Writer, family

convolution = family("convolution")


@convolution.statement(1)
def convolve(w: Writer) -> Value | None:
    """A value as images of features, by a kernel that a constant or another value fills."""
    if w.depth and not w.whole:
        return None
    x = w.pick(
        lambda v: v.element != "i1" and not (w.whole and v.element in COARSE) and prod(v.shape) > 0, least_rank=2
    )
    if x is None or len(x.shape) > 5:
        return None
    order = w.random.sample(range(len(x.shape)), len(x.shape))
    batch, features = x.shape[order[0]], x.shape[order[1]]
    groups, batches = _groups(w, batch, features)
    spatial = [x.shape[i] for i in order[2:]]
    window = [w.random.randint(1, 3) for _ in spatial]
    out = groups * batches * w.random.randint(1, 2)
    kernel = _kernel(w, (*window, features // groups, out), x)
    text, sizes = _window(w, spatial, window)
    if min(sizes, default=1) < 0:
        return None
    made = (batch // batches, *sizes, out)
    if prod(made) > 4000:
        return None
    x = w.ready(x)
    names = {order[0]: "b", order[1]: "f"} | {place: str(i) for i, place in enumerate(order[2:])}
    inputs = ", ".join(names[i] for i in range(len(order)))
    places = ", ".join(map(str, range(len(spatial))))
    separator = ", " if spatial else ""
    dims = f"[{inputs}]x[{places}{separator}i, o]->[b, {places}{separator}f]"
    return w.emit(
        f"stablehlo.convolution({x.name}, {kernel.name}) dim_numbers = {dims}, window = {{{text}}}"
        f" {{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}}"
        f" : ({x.type}, {kernel.type}) -> {tensor(made, x.element)}",
        made,
        x.element,
    )


def _groups(w: Writer, batch: int, features: int) -> tuple[int, int]:
    """Feature groups and batch groups; one of them is 1."""
    if w.chance(0.2):
        return w.random.choice([g for g in (1, 2, 3, features) if features % g == 0]), 1
    if w.chance(0.2):
        return 1, w.random.choice([g for g in (1, 2, 3) if batch % g == 0])
    return 1, 1


def _kernel(w: Writer, shape: tuple[int, ...], x: Value) -> Value:
    """A value of that shape where there is one, else small numbers."""
    found = w.pick(lambda v: v.shape == shape and v.element == x.element)
    if found is not None:
        return w.ready(found)
    count = prod(shape)
    counted = w.emit(f"stablehlo.iota dim = 0 : {tensor((count,), 'i32')}", (count,), "i32")
    three = w.splat(3, (count,), "i32")
    rest = w.emit(f"stablehlo.remainder {counted.name}, {three.name} : {counted.type}", (count,), "i32")
    made = w.emit(f"stablehlo.reshape {rest.name} : ({rest.type}) -> {tensor(shape, 'i32')}", shape, "i32")
    if x.element == "i32":
        return made
    return w.emit(f"stablehlo.convert {made.name} : ({made.type}) -> {tensor(shape, x.element)}", shape, x.element)


def _window(w: Writer, spatial: list[int], window: list[int]) -> tuple[str, list[int]]:
    """The text of the window's attributes, and the extents of the result."""
    stride = [w.random.randint(1, 2) for _ in spatial]
    pad = [[w.random.randint(-1, 2), w.random.randint(-1, 2)] for _ in spatial]
    lhs = [w.random.randint(1, 2) for _ in spatial]
    rhs = [w.random.randint(1, 2) for _ in spatial]
    reverse = [int(w.chance(0.3)) for _ in spatial]
    sizes = []
    for n, k, s, (low, high), a, b in zip(spatial, window, stride, pad, lhs, rhs, strict=True):
        padded = low + high + ((n - 1) * a + 1 if n else 0)
        width = (k - 1) * b + 1
        sizes.append((padded - width) // s + 1 if padded >= width else 0 if padded >= 0 else -1)
    flags = [bool(r) for r in reverse]
    text = f"stride = {stride}, pad = {pad}, lhs_dilate = {lhs}, rhs_dilate = {rhs}, reverse = {str(flags).lower()}"
    return text if spatial else "", sizes
