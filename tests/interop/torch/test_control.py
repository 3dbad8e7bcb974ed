"""Higher-order operators of PyTorch, beside what they do eagerly, with gradients where PyTorch has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan, associative_scan_op
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.dynamo import backend

ROW, ROWS = torch.tensor([0.5, -1.0, 2.0]), torch.arange(12.0).reshape(4, 3) / 7 - 0.5


def leaves(made: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(made) if isinstance(x, torch.Tensor)]


def is_eager(function: Callable[..., Any], *inputs: Any, gradients: bool = True) -> Any:
    """Check results and gradients against eager PyTorch's; return the results."""
    ours, theirs = ([x.clone().requires_grad_(gradients and x.is_floating_point()) for x in inputs] for _ in range(2))
    torch._dynamo.reset()
    wanted = torch.compile(function, backend="eager")(*theirs)
    torch._dynamo.reset()
    made = torch.compile(function, backend=backend, fullgraph=True)(*ours)
    torch.testing.assert_close(made, wanted)
    if gradients:
        for results in (wanted, made):
            sum((x * x).sum() for x in leaves(results) if x.requires_grad).backward()
        torch.testing.assert_close([x.grad for x in ours], [x.grad for x in theirs])
    return made


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign: float) -> None:
    def function(x: torch.Tensor, row: torch.Tensor) -> Any:
        first = torch.cond(x.sum() > 0, lambda x: (x * row, x.sum()), lambda x: (x - row, x.mean()), (x,))
        return first, torch.cond(x.sum() < 0, lambda: row.cos(), lambda: row.sin(), ())

    is_eager(function, sign * ROWS, ROW)


def test_a_branch_alone_runs() -> None:
    """The branch that is not taken would loop for ever."""

    def endless(x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda y: y.sum() < 1, lambda y: (y * 1,), (x * 0,))[0]

    is_eager(lambda x: torch.cond(x.sum() > 0, lambda x: x + 1, endless, (x,)), ROWS.abs(), gradients=False)


def test_while_loop() -> None:
    def function(x: torch.Tensor, count: torch.Tensor) -> Any:
        return while_loop(lambda i, y: i < count, lambda i, y: (i + 1, y * 0.5 + ROW), (torch.tensor(0), x))

    for count in (0, 5):
        is_eager(function, ROWS, torch.tensor(count), gradients=False)


def test_a_loop_carries_python_numbers() -> None:
    made = is_eager(
        lambda x: while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2 + i), (0, x)), ROWS, gradients=False
    )
    assert made[0] == 3


def test_the_gradient_of_a_while_loop_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return while_loop(lambda y: y.sum() < 10, lambda y: (y * 2,), (x,))[0]

    with pytest.raises(Exception, match=r"number is not known\n.*test_control\.py.*\n.*scan"):
        torch.compile(function, backend=backend, fullgraph=True)(ROWS.abs().requires_grad_())


def test_scan() -> None:
    def step(carry: torch.Tensor, x: torch.Tensor) -> Any:
        return carry * 0.5 + x * ROW, (carry - x).sin()

    is_eager(lambda c, x: scan(step, c, x), ROW, ROWS)
    is_eager(lambda c, x: scan(lambda c, x: (c * x, c + x), c, x, dim=1, reverse=True), ROWS[:, 0], ROWS)


def test_map() -> None:
    is_eager(lambda x, row: map_rows(lambda x, row: (x * row).sin(), x, row), ROWS, ROW)


def test_associative_scan() -> None:
    """PyTorch keeps the operator where the combination is element-wise, else it makes a tree of it."""
    is_eager(lambda x: associative_scan(lambda a, b: a * b + a, x, 0, combine_mode="generic"), ROWS)

    def pairs(x: torch.Tensor, y: torch.Tensor) -> Any:
        return associative_scan_op(lambda a, b, c, d: (a * c, b * c + d), [x, y], ())

    for rows in (ROWS, ROWS[:1]):
        graph = make_fx(pairs, tracing_mode="fake")(rows, rows + 1)
        made = CompiledGraph(graph, [rows, rows + 1])([rows, rows + 1])
        a, b = [rows[0]], [rows[0] + 1]
        for x in rows[1:]:
            a, b = [*a, a[-1] * x], [*b, b[-1] * x + x + 1]
        torch.testing.assert_close(made, [torch.stack(a), torch.stack(b)])


def test_regions_that_are_called() -> None:
    @torch.compiler.nested_compile_region
    def region(x: torch.Tensor) -> torch.Tensor:
        return (x * ROW).sin()

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = x.sin()
        return checkpoint(lambda z: (z * y).cos().exp(), region(region(x)), use_reentrant=False)

    x = ROWS.clone().requires_grad_()
    torch.compile(function, backend=backend, fullgraph=True)(x).sum().backward()
    y = ROWS.clone().requires_grad_()
    outer = ((y * ROW).sin() * ROW).sin() * ROWS.sin()
    outer.cos().exp().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_products_in_a_wider_type() -> None:
    x, y = (torch.randint(-128, 127, (4, 4), dtype=torch.int8) for _ in range(2))
    graph = make_fx(lambda x, y: out_dtype(torch.ops.aten.mm.default, torch.int32, x, y), tracing_mode="fake")(x, y)
    assert torch.equal(CompiledGraph(graph, [x, y])([x, y])[0], x.int() @ y.int())


def test_a_loop_is_a_loop() -> None:
    """The program has no iteration for each of a thousand rows."""
    rows = torch.ones(1000, 3)
    graph = make_fx(lambda c, x: scan(lambda c, x: (c + x, c * x), c, x), tracing_mode="fake")(ROW, rows)
    compiled = CompiledGraph(graph, [ROW, rows])
    assert str(compiled.computation).count("stablehlo.while") == 1
    assert len(str(compiled.computation).splitlines()) < 60
    torch.testing.assert_close(compiled([ROW, rows])[0], ROW + 1000)
