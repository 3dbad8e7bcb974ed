"""Sorting, of one array and of several at once."""

from __future__ import annotations

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import Writer, family

order = family("order")


@order.statement(1)
def sort(w: Writer) -> list[Value] | None:
    """By the first array; the sort is stable, so that equal keys leave no choice. NaN would have no order."""
    x = w.pick(lambda v: not v.is_complex and not (v.is_float and not w.whole), least_rank=1)
    if x is None:
        return None
    others = [v for v in w.values if v.shape == x.shape]
    operands = [x, *w.random.choices(others, k=w.random.randint(0, 2))]
    names = [w.name() for _ in range(2 * len(operands) + 1)]
    scalars = [tensor((), v.element) for v in operands]
    pairs = [(names[2 * i + k], scalars[i]) for i in range(len(operands)) for k in (0, 1)]
    arguments = ", ".join(f"{n}: {t}" for n, t in pairs)
    type_ = x.element_type
    kind = "FLOAT" if type_.is_float else "SIGNED" if type_.is_signed else "UNSIGNED"
    word = w.random.choice(["LT", "GT"])
    types = ", ".join(v.type for v in operands)
    return w.emit_several(
        f'"stablehlo.sort"({", ".join(v.name for v in operands)}) ({{\n^bb0({arguments}):\n'
        f"{names[-1]} = stablehlo.compare {word}, {names[0]}, {names[1]}, {kind}"
        f" : ({scalars[0]}, {scalars[0]}) -> tensor<i1>\nstablehlo.return {names[-1]} : tensor<i1>\n}})"
        f" {{dimension = {w.random.randrange(len(x.shape))} : i64, is_stable = true}} : ({types}) -> ({types})",
        [(v.shape, v.element) for v in operands],
    )
