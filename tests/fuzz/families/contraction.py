"""Products of matrices, with contracted and batch dimensions anywhere."""

from __future__ import annotations

from math import prod

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import COARSE, Writer, family

contraction = family("contraction")


@contraction.statement(1.3)
def dot_general(w: Writer) -> Value | None:
    """Any pairs of dimensions of the same extent, at times of an array with itself; of moderate size."""
    if w.depth and not w.whole:
        return None
    x = w.pick(lambda v: v.element != "i1" and not (w.whole and v.element in COARSE), least_rank=1)
    y = x if w.chance(0.3) else w.pick(lambda v: x is not None and v.element == x.element, least_rank=1)
    if x is None or y is None:
        return None
    pairs = _pairs(w, x, y)
    if not pairs:
        return None
    batch, contracted = pairs[: w.chance(0.3)], pairs[w.chance(0.3) :][:2]
    contracted = [p for p in contracted if p not in batch]
    x, y = w.ready(x), w.ready(y)
    free = [
        tuple(d for i, d in enumerate(v.shape) if i not in [p[side] for p in (*batch, *contracted)])
        for side, v in enumerate((x, y))
    ]
    shape = (*(x.shape[i] for i, _ in batch), *free[0], *free[1])
    terms = prod(shape) * prod(x.shape[i] for i, _ in contracted)
    if prod(shape) > w.most or terms > 1000 * w.most or len(shape) > 6:
        return None
    sides = [f"[{', '.join(str(p[side]) for p in some)}]" for some in (batch, contracted) for side in (0, 1)]
    batching = f"batching_dims = {sides[0]} x {sides[1]}, " if batch else ""
    contracting = f"contracting_dims = {sides[2]} x {sides[3]}" if contracted else "contracting_dims = [] x []"
    types = f"({x.type}, {y.type}) -> {tensor(shape, x.element)}"
    return w.emit(f"stablehlo.dot_general {x.name}, {y.name}, {batching}{contracting} : {types}", shape, x.element)


def _pairs(w: Writer, x: Value, y: Value) -> list[tuple[int, int]]:
    """Dimensions of equal extent, each used once."""
    found: list[tuple[int, int]] = []
    candidates = [(i, j) for i, d in enumerate(x.shape) for j, e in enumerate(y.shape) if d == e]
    w.random.shuffle(candidates)
    for i, j in candidates:
        if all(i != a and j != b for a, b in found):
            found.append((i, j))
    return found
