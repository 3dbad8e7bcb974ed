"""Programs of updates, conditionals and loops, nested at random, on arrays of one type that any of them may yield."""

from __future__ import annotations

import random
from collections.abc import Sequence

ARRAY = "tensor<6xi32>"
_LEAVES = {
    "stablehlo.dynamic_update_slice {}, %u, %i": f"({ARRAY}, tensor<2xi32>, tensor<i32>) -> {ARRAY}",
    "stablehlo.add {}, {}": ARRAY,
    "stablehlo.reverse {}, dims = [0]": ARRAY,
}


class ControlFlow:
    """One program, of a seed; `depth` is how deep conditionals and loops are nested at most."""

    def __init__(self, seed: int, depth: int) -> None:
        self._random = random.Random(seed)
        self._depth = depth
        self._names = 0

    def text(self) -> str:
        count = self._random.randint(1, 3)
        body = self._block(["%x", "%y"], self._depth, count, "return")
        donated = f"{ARRAY} {{jax.buffer_donor = true}}"
        arguments = f"%x: {donated}, %y: {donated}, %u: tensor<2xi32>, %i: tensor<i32>, %n: tensor<i32>"
        return f"func.func public @main({arguments}) -> ({_types(count)}) {{\n{body}}}"

    def _new(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def _pick(self, scope: Sequence[str]) -> str:
        """An array, rather one of the last ones, so that many are dead soon."""
        drawn = self._random
        return drawn.choice(scope[-3:]) if drawn.random() < 0.7 else drawn.choice(scope)

    def _block(self, scope: Sequence[str], depth: int, count: int, terminator: str, first: str = "") -> str:
        """Operations, and a terminator that gives `first` and so many arrays."""
        names, lines, drawn = list(scope), [], self._random
        for _ in range(drawn.randint(0, 8 if depth == self._depth else 4)):
            kind = drawn.choices(("leaf", "case", "while"), (0.6, 0.25, 0.15) if depth else (1, 0, 0))[0]
            made = {"leaf": self._leaf, "case": self._case, "while": self._while}[kind]
            text, results = made(names, depth - 1)
            lines.append(text)
            names += results
        if count <= len(names) and drawn.random() < 0.4:
            given = drawn.sample(names[-max(count, 4) :], count)
        else:
            given = [self._pick(names) for _ in range(count)]
        types = f"tensor<i32>, {_types(count)}" if first else _types(count)
        lines.append(f"{terminator} {', '.join([first] * bool(first) + given)} : {types}")
        return "\n".join([*lines, ""])

    def _leaf(self, scope: Sequence[str], _: int) -> tuple[str, list[str]]:
        name = self._new()
        operation, types = self._random.choices(list(_LEAVES.items()), (0.7, 0.15, 0.15))[0]
        operands = [self._pick(scope) for _ in range(operation.count("{}"))]
        return f"{name} = {operation.format(*operands)} : {types}", [name]

    def _case(self, scope: Sequence[str], depth: int) -> tuple[str, list[str]]:
        name, count, drawn = self._new(), self._random.randint(1, 3), self._random
        branches = [self._block(scope, depth, count, "stablehlo.return") for _ in range(drawn.choice((2, 2, 3)))]
        regions = ", ".join(f"{{\n{branch}}}" for branch in branches)
        text = f'{name}:{count} = "stablehlo.case"(%i) ({regions}) : (tensor<i32>) -> ({_types(count)})'
        return text, [f"{name}#{i}" for i in range(count)]

    def _while(self, scope: Sequence[str], depth: int) -> tuple[str, list[str]]:
        name, turn, go, turned = (self._new() for _ in range(4))
        carried = {self._new(): self._pick(scope) for _ in range(self._random.randint(1, 3))}
        types = f"tensor<i32>, {_types(len(carried))}"
        starts = ", ".join(f"{argument} = {start}" for argument, start in carried.items())
        body = self._block([*scope, *carried], depth, len(carried), "stablehlo.return", turned)
        text = f"""{name}:{len(carried) + 1} = stablehlo.while({turn} = %i, {starts}) : {types} cond {{
          {go} = stablehlo.compare LT, {turn}, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return {go} : tensor<i1>
        }} do {{
          {turned} = stablehlo.add {turn}, %n : tensor<i32>
          {body}}}"""
        return text, [f"{name}#{i + 1}" for i in range(len(carried))]


def _types(count: int) -> str:
    return ", ".join([ARRAY] * count)
