"""The backend of `torch.compile`: what a model does under it, beside the same model eagerly."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from stablexla.interop.torch import compiled as compiled_module
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.dynamo import backend

warnings.filterwarnings("ignore", "Guards may run slower")
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[CompiledGraph]:
    """The graphs that the test compiles."""
    made: list[CompiledGraph] = []
    begin = CompiledGraph.__init__

    def init(self: CompiledGraph, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        made.append(self)

    monkeypatch.setattr(compiled_module.CompiledGraph, "__init__", init)
    return made


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, **options)


def network() -> nn.Module:
    """Without a bias before the batch norm: its gradient is rounding errors alone, which Adam would magnify."""
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def x() -> torch.Tensor:
    return (torch.arange(30.0) * 1.7).sin().reshape(5, 6)


def gradients(module: nn.Module) -> list[torch.Tensor | None]:
    return [p.grad for p in module.parameters()]


# ---- training ----


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
        lambda p: torch.optim.Adam(p, 0.01),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
        lambda p: torch.optim.AdamW(p, 0.01, foreach=False, amsgrad=True),
    ],
)
def test_three_steps_of_training(optimizer: Callable[..., Any], graphs: list[CompiledGraph]) -> None:
    """Parameters and buffers, which a batch norm and the compiled optimizer change in place, are as in eager mode."""
    ours, theirs = network(), network()
    ours.load_state_dict(theirs.state_dict())
    for module in (ours, theirs):
        steps = optimizer(module.parameters())
        forward = compiled(module) if module is ours else module
        step = compiled(steps.step) if module is ours else steps.step
        for _ in range(3):
            steps.zero_grad()
            forward(x()).square().mean().backward()
            step()
    close(ours.state_dict(), theirs.state_dict())
    assert any(graph._donates for graph in graphs), "what a step changes lies where it lay"


def test_forward_saves_inputs_without_a_copy(graphs: list[CompiledGraph]) -> None:
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    compiled(module)(x()).sum().backward()
    forward, _ = graphs
    assert [result.shape for result in forward.executable.results] == [(5, 3), (5, 16)]  # type: ignore[union-attr]


def test_parts_of_one_memory_are_saved_for_the_gradient() -> None:
    """Queries, keys and values of one product: the saved ones lie at offsets of it in the graph."""
    module, ours = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    theirs = ours.clone()
    for value, call in ((ours, compiled(module)), (theirs, module)):
        value.requires_grad_()
        call(value, value, value, need_weights=False)[0].square().sum().backward()
    close(ours.grad, theirs.grad)


def test_autocast_computes_in_bf16() -> None:
    module = network().eval()

    def forward(value: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return module(value)

    made = compiled(forward)(x())
    assert made.dtype is torch.bfloat16
    made.float().sum().backward()
    ours = gradients(module)
    module.zero_grad()
    wanted = forward(x())
    wanted.float().sum().backward()
    close(made, wanted, atol=2e-2, rtol=2e-2)
    close(ours, gradients(module), atol=5e-2, rtol=5e-2)


def test_checkpoints_repeat_their_dropout() -> None:
    def forward(value: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda v: nn.functional.dropout(v.sin(), 0.5).exp(), value, use_reentrant=False)

    value = torch.ones(1000, requires_grad=True)
    made = compiled(forward)(value)
    made.sum().backward()
    kept = made.detach() != 1
    assert 300 < kept.sum() < 700
    close(value.grad, torch.where(kept, 2 * math.cos(1) * made.detach(), 0.0))


def test_dropout_follows_the_seed() -> None:
    drop = compiled(lambda v: nn.functional.dropout(v, 0.5))
    first, second = drop(torch.ones(1000)), drop(torch.ones(1000))
    torch.manual_seed(0)
    assert torch.equal(drop(torch.ones(1000)), first)
    assert not torch.equal(first, second)


def test_hooks_and_functions_of_the_users() -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(value)
            return value**3

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (value,) = ctx.saved_tensors
            return gradient * value  # not what autograd would say

    def forward(value: torch.Tensor) -> torch.Tensor:
        made = Cube.apply(value)
        made.register_hook(lambda gradient: gradient * 10)
        return made

    value = x().requires_grad_()
    compiled(forward)(value).sum().backward()
    close(value.grad, 10 * x())


def test_a_backward_pass_runs_again() -> None:
    value = x().requires_grad_()
    made = compiled(lambda v: v.sin() * v.exp())(value)
    made.sum().backward(retain_graph=True)
    first = value.grad
    value.grad = None
    made.sum().backward()
    close(value.grad, first)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev", "jacfwd", "hessian"])
def test_transforms_of_functions(transform: str) -> None:
    functions = {"grad": lambda v: (v**3).sum(), "hessian": lambda v: torch.tanh(v).sum() ** 2}
    function = functions.get(transform, lambda v: torch.tanh(v) * v.sum())
    given = x() if transform == "vmap" else x()[0]

    def forward(value: torch.Tensor) -> torch.Tensor:
        return getattr(torch.func, transform)(function)(value)

    close(compiled(forward)(given), forward(given))


# ---- memory ----


def test_views_and_aliases_of_inputs_and_of_each_other() -> None:
    def forward(value: torch.Tensor) -> Any:
        made = value * 2
        return value[1:], value.t(), value, value.clone(), None, made, made, made.view(-1), made[1:].t()

    value = x()
    results, wanted = compiled(forward)(value), forward(value)
    for ours, theirs in zip(results, wanted):
        close(ours, theirs)
        assert ours is None or ours.stride() == theirs.stride()
    first, across, same, cloned, _, made, again, flat, part = results
    assert same is value
    assert first.data_ptr() == value[1:].data_ptr()
    assert across.data_ptr() == value.data_ptr() != cloned.data_ptr()
    assert made.data_ptr() == again.data_ptr() == flat.data_ptr()
    assert part.data_ptr() == made[1:].data_ptr()


def test_channels_last_stays() -> None:
    value = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    made = compiled(lambda v: torch.relu(v) * 2)(value)
    assert made.is_contiguous(memory_format=torch.channels_last)
    made.add_(1)  # a view of memory in another order could not be changed
    made.sum().backward()
    close(value.grad, (value.detach() > 0) * 2.0)


def changing(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    value.add_(1)
    other[0] = 7
    return value * other


@pytest.mark.parametrize(
    "inputs",
    [
        lambda m: (m[:6], m[6:12]),
        lambda m: (m[:6], m[2:8]),
        lambda m: (m, m),
        lambda m: (m.t()[::2], m.t()[1::2]),
        lambda m: (m.view(2, 6, 12)[0, :, ::3], m.view(2, 6, 12)[1, :, 1::3]),
    ],
)
def test_inputs_are_changed_in_place(inputs: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Parts of one memory, which overlap, or which are not contiguous."""
    ours, theirs = (torch.arange(144.0).reshape(12, 12) for _ in range(2))
    version = ours._version
    close(compiled(changing)(*inputs(ours)), changing(*inputs(theirs)))
    close(ours, theirs)
    assert ours._version > version


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(0, 3),
        torch.tensor(3.0),
        torch.randn(8, 8)[::2, 1::3],
        torch.ones(3, 1).expand(3, 4),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3).bfloat16(),
        torch.arange(4, dtype=torch.uint8),
    ],
    ids=lambda value: f"{value.dtype}{list(value.shape)}",
)
def test_odd_inputs(value: torch.Tensor) -> None:
    close(compiled(lambda v: (v * 2, v.sum()))(value), (value * 2, value.sum()))


def test_constants_numbers_and_containers() -> None:
    table = torch.tensor([1.0, 2.0, 3.0])

    def forward(given: dict[str, Any]) -> dict[str, Any]:
        return {"sum": given["x"] + table + given["more"][0], "none": None, "word": "a", "size": given["x"].shape[0]}

    given = {"x": torch.ones(4, 3), "more": [torch.ones(3)]}
    made, wanted = compiled(forward)(given), forward(given)
    close(made.pop("sum"), wanted.pop("sum"))
    assert made == wanted


def test_without_gradients() -> None:
    value = x().requires_grad_()
    double = compiled(lambda v: v * 2)
    with torch.no_grad():
        assert not double(value).requires_grad
    with torch.inference_mode():
        close(double(value), 2 * x())
    assert double(value).requires_grad


# ---- graphs ----


def test_graph_breaks_and_branches_on_numbers() -> None:
    def forward(value: torch.Tensor) -> torch.Tensor:
        made = value * 2
        torch._dynamo.graph_break()
        return made + 1 if made.sum() > 0 else made - torch.nonzero(made).sum()

    for value in (x() + 1, x() - 1):
        close(compiled(forward)(value), forward(value))


@pytest.mark.parametrize("options", [{}, {"dynamic": True}])
def test_sizes_and_numbers_differ(options: dict[str, Any]) -> None:
    forward = compiled(lambda v, s: (v * s + v.shape[0]).sum(0), **options)
    for count, factor in ((3, 2), (4, 1.5), (7, 2.5), (4, 3.5), (9, 3)):
        close(forward(torch.ones(count, 2), factor), torch.full((2,), float(count * (factor + count))))


def test_training_with_marked_sizes(graphs: list[CompiledGraph]) -> None:
    module = network().eval()
    forward = compiled(module)
    for count in (3, 4, 3):
        value = torch.randn(count, 6)
        torch._dynamo.mark_dynamic(value, 0)
        module.zero_grad()
        forward(value).sum().backward()
        ours = gradients(module)
        module.zero_grad()
        module(value).sum().backward()
        close(ours, gradients(module))
    assert len(graphs) == 4, "a forward and a backward graph for each size"


def test_options() -> None:
    assert compiled(torch.relu, options={"num_threads": 1, "deterministic": True})(x()).min() == 0
    with pytest.raises(Exception, match=r"options of torch.compile: .*'nonsense'\n.*try: fields.*num_threads"):
        compiled(torch.relu, options={"nonsense": 1})(x())


def test_an_operator_without_a_rule_is_named_with_the_line() -> None:
    def forward(value: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._test_optional_intlist(value, None)

    with pytest.raises(
        Exception, match=r"_test_optional_intlist.default\(s32\[3\], None\): there is no rule"
    ) as caught:
        compiled(forward)(torch.ones(3, dtype=torch.int32))
    assert "test_dynamo.py" in str(caught.value)


def test_copies_and_threads() -> None:
    module = compiled(network().eval())
    assert isinstance(module, nn.Module)
    wanted = module(x())
    close(copy.deepcopy(module)(x()), wanted)
    found: list[bool] = []

    def run() -> None:
        found.append(all(torch.equal(module(x() + n), module(x() + n)) for n in range(20)))

    threads = [Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
