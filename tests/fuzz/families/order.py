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
    arguments = [Value(w.name(), (), v.element) for v in operands for _ in "ab"]
    through, word, scalar = w.through_arrays(), w.random.choice(["LT", "GT"]), tensor((), x.element)
    type_ = x.element_type
    kind = "FLOAT" if type_.is_float else "SIGNED" if type_.is_signed else "UNSIGNED"

    def less() -> list[Value]:
        w.values = list(arguments)
        a, b = (through(w, v).name for v in arguments[:2])
        return [w.emit(f"stablehlo.compare {word}, {a}, {b}, {kind} : ({scalar}, {scalar}) -> tensor<i1>", (), "i1")]

    types = ", ".join(v.type for v in operands)
    return w.emit_several(
        f'"stablehlo.sort"({", ".join(v.name for v in operands)}) {w.region(arguments, less)[0]}'
        f" {{dimension = {w.random.randrange(len(x.shape))} : i64, is_stable = true}} : ({types}) -> ({types})",
        [(v.shape, v.element) for v in operands],
    )
