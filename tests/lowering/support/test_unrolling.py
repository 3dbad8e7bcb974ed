"""Which loops are unrolled: the copies of an operation and the code that is made, over all loops in one another."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests import nests

X = "tensor<4xf32>"


def loops_left(text: str) -> int:
    return sx.compile(text).ir("tensor").count("scf.while")


@pytest.mark.parametrize(
    ("kind", "depth", "trips", "left"),
    [
        ("loops", 1, 8, 0),
        ("loops", 1, 9, 1),
        ("loops", 3, 2, 0),
        ("loops", 4, 2, 1),
        ("loops", 2, 3, 1),
        ("loops", 5, 1, 0),
        ("loops", 3, 8, 2),
        ("branches in loops", 2, 3, 1),
        ("branches in loops", 3, 2, 0),
        ("loops in branches", 2, 8, 1),
        ("loops in a map", 2, 8, 1),
    ],
)
def test_copies(kind: str, depth: int, trips: int, left: int) -> None:
    assert loops_left(nests.program(kind, depth, trips)) == left


def repeated(operation: str, count: int) -> str:
    """Return a loop of 8 iterations with so many operations."""
    lines = [f"%{i} = stablehlo.{operation} %{i - 1} : {X}" for i in range(1, count + 1)]
    return f"""func.func @main(%x: {X}) -> {X} {{
      %start = stablehlo.constant dense<0> : tensor<i32>
      %end = stablehlo.constant dense<8> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %start, %0 = %x) : tensor<i32>, {X} cond {{
        %p = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      }} do {{
        {" ".join(lines)}
        %j = stablehlo.add %i, %one : tensor<i32>
        stablehlo.return %j, %{count} : tensor<i32>, {X}
      }}
      return %r#1 : {X}
    }}"""


@pytest.mark.parametrize(("operation", "most"), [("negate", 60), ("sine", 3), ("tanh", 12)])
def test_code(operation: str, most: int) -> None:
    assert loops_left(repeated(operation, most)) == 0
    assert loops_left(repeated(operation, most + 1)) == 1


def test_a_loop_around_one_that_stays_is_not_unrolled() -> None:
    inner = nests.program("loops", 2, 9).replace("dense<9>", "dense<2>", 1)  # of the outer loop
    assert loops_left(inner) == 2
