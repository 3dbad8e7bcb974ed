"""Layers of networks and their gradients, in sizes, memory and with numbers that PyTorch's own samples lack."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from operator import getitem
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from stablexla.interop import torch as sx_torch
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.dynamo import backend
from tests.interop.torch.running import agrees


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def with_gradients(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function, and the gradients of what it gives by its inputs of floats."""

    def both(*given: torch.Tensor) -> Any:
        inputs = [t.detach().requires_grad_(t.is_floating_point()) for t in given]
        made = function(*inputs)
        weights = torch.sin(torch.arange(made.numel(), dtype=made.dtype)).reshape(made.shape)
        return made.detach(), *torch.autograd.grad(made, [t for t in inputs if t.requires_grad], weights)

    return both


CONVOLUTIONS = {
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": (2, 1), "padding": (3, 0)},
    "grouped": {"groups": 4, "stride": (1, 3), "padding": 2},
    "depthwise": {"groups": 8, "padding": 1},
}


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_convolutions(options: dict[str, Any], transposed: bool) -> None:
    """The last window ends before the last pixel, which then has no gradient; features are the last in memory."""
    x = torch.randn(3, 8, 18, 16).to(memory_format=torch.channels_last)
    function: Any = F.conv_transpose2d if transposed else F.conv2d
    weight = torch.randn(8, 8 // options.get("groups", 1), 3, 3)
    agrees(
        with_gradients(lambda x, w, b: function(x, w, b, **options)), x, weight, torch.randn(8), rtol=2e-4, atol=2e-4
    )


@pytest.mark.parametrize("sizes", [(0, 4, 9), (2, 4, 9)], ids=["empty", ""])
def test_convolution_of_halves_rounds_once(sizes: tuple[int, ...]) -> None:
    x, weight, bias = torch.randn(sizes).bfloat16(), torch.randn(4, 4, 3).bfloat16(), torch.randn(4).bfloat16()
    agrees(F.conv1d, x, weight, bias, rtol=8e-3, atol=1e-5)


def odd_image(*sizes: int) -> torch.Tensor:
    """An image with NaNs beside each other, infinities and equal elements."""
    x = torch.randn(sizes).round(decimals=1)
    flat = x.view(-1, sizes[-1])
    flat[2, 3:5], flat[9, 1], flat[10], flat[1, 0] = nan, inf, -inf, -inf
    return x


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_largest_of_windows(dilation: int, ceil_mode: bool) -> None:
    """The places are the first of equal elements and the last NaN."""
    options = {"stride": 2, "padding": 1, "dilation": dilation, "ceil_mode": ceil_mode, "return_indices": True}
    agrees(lambda x: F.max_pool2d(x, 3, **options), odd_image(2, 3, 15, 12))
    agrees(with_gradients(lambda x: F.max_pool2d(x, 3, **options)[0]), torch.randn(2, 3, 15, 12).transpose(2, 3))


def test_largest_of_windows_of_several_sizes() -> None:
    agrees(lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True), odd_image(2, 3, 11, 12))


def test_means_of_windows_of_several_sizes_leave_out_their_neighbours() -> None:
    x = torch.randn(2, 3, 11, 7)
    x[:, :, 3, 3] = inf
    agrees(lambda x: F.adaptive_avg_pool2d(x, (4, 5)), x)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 3, 1)])
def test_means_of_windows(kernel: int, stride: int, padding: int) -> None:
    for options in ((True, False), (True, True), (False, True, 5)):  # the last windows, the padding, the divisor
        function = with_gradients(lambda x, options=options: F.avg_pool2d(x, kernel, stride, padding, *options))
        agrees(function, torch.randn(2, 3, 21, 16), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(training: bool) -> None:
    """With a mean far from zero, where the mean of squares would lose it; running statistics are changed."""
    x, made = torch.randn(6, 5, 7) + 300, []
    for run in (lambda module: module, lambda module: torch.compile(module, backend=backend)):
        torch.manual_seed(1)
        module = nn.BatchNorm1d(5, momentum=0.3).train(training)
        nn.init.normal_(module.weight)
        given = x.clone().requires_grad_()
        result = run(module)(given)
        result.backward(torch.sin(torch.arange(210.0)).reshape(6, 5, 7))
        made.append([result, given.grad, module.weight.grad, module.running_mean, module.running_var])
    torch.testing.assert_close(*made, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("rows", [0, 3])
def test_norms_of_rows(rows: int) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (33,), weight, weight) + F.rms_norm(x, (33,), weight) * 0.5

    agrees(with_gradients(function), torch.randn(rows, 4, 33) + 50, torch.randn(33), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("sizes", [(3, 6, 5, 7), (2, 6), (0, 6, 4)])
def test_norms_of_groups(groups: int, sizes: tuple[int, ...]) -> None:
    def function(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.group_norm(x, groups, weight, weight * 0.5) + F.group_norm(x, groups)

    agrees(with_gradients(function), torch.randn(sizes) * 3 + 5, torch.randn(6), rtol=2e-3, atol=2e-4)


def test_norms_of_halves() -> None:
    x = (torch.randn(5, 64) * 3 + 1).half()
    agrees(lambda x: F.layer_norm(x, (64,)), x, rtol=2e-3, atol=1e-3)
    agrees(lambda x: F.group_norm(x.reshape(5, 8, 8), 2), x, rtol=2e-3, atol=1e-3)


RESAMPLED = {
    "nearest": {"mode": "nearest"},
    "nearest-exact": {"mode": "nearest-exact"},
    "bilinear": {"mode": "bilinear"},
    "corners": {"mode": "bilinear", "align_corners": True},
    "bicubic": {"mode": "bicubic"},
    "antialias": {"mode": "bicubic", "antialias": True},
}


@pytest.mark.parametrize("options", RESAMPLED.values(), ids=RESAMPLED)
@pytest.mark.parametrize("size", [(26, 40), (5, 64)], ids=["doubled", "smaller-and-larger"])
def test_resampling(options: dict[str, Any], size: tuple[int, int]) -> None:
    function = with_gradients(lambda x: F.interpolate(x, size, **options))
    agrees(function, torch.randn(2, 3, 13, 20), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pads(mode: str) -> None:
    agrees(with_gradients(lambda x: F.pad(x, (3, 2, -1, 4), mode=mode)), torch.randn(2, 3, 9, 8))


def test_many_blocks_of_an_image() -> None:
    """More elements of a block than are written out as slices."""
    agrees(with_gradients(lambda x: F.unfold(x, (20, 3), padding=1, stride=2)), torch.randn(2, 2, 30, 11))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_grid_sampling(mode: str, padding: str) -> None:
    function = with_gradients(lambda x, grid: F.grid_sample(x, grid, mode, padding, align_corners=False))
    agrees(function, torch.randn(2, 3, 7, 8), torch.randn(2, 5, 6, 2) * 3, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sampling_beyond_what_an_integer_holds(mode: str) -> None:
    grid = torch.randn(2, 5, 6, 2)
    grid[0, 0, 0], grid[0, 0, 1, 0], grid[0, 1, 1, 1] = 1e30, -1e12, 1e12
    agrees(lambda x, grid: F.grid_sample(x, grid, mode, align_corners=False), torch.randn(2, 3, 7, 8), grid)


# ---- recurrent networks ----


def called(operator: Any, *args: Any) -> list[torch.Tensor]:
    """The results of an operator as torch.export keeps it, by its rule."""
    leaves, spec = pytree.tree_flatten(args)
    graph = Graph()
    nodes = [graph.placeholder(f"x{n}") if isinstance(leaf, torch.Tensor) else leaf for n, leaf in enumerate(leaves)]
    node = graph.call_function(operator, pytree.tree_unflatten(nodes, spec))
    node.meta["val"] = wanted = operator(*args)
    outputs = []
    for number, value in enumerate(wanted):
        outputs.append(graph.call_function(getitem, (node, number)))
        outputs[-1].meta["val"] = value
    graph.output(tuple(outputs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return CompiledGraph(GraphModule(nn.Module(), graph), tensors)(tensors)


MODULES = {
    "lstm": (nn.LSTM, {}),
    "projected": (nn.LSTM, {"proj_size": 3}),
    "gru": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@torch.no_grad()
def test_recurrent(name: str, bias: bool) -> None:
    """Two layers in both directions, with the batch first, and packed sequences of several lengths."""
    kind, options = MODULES[name]
    module = kind(5, 7, 2, bias=bias, bidirectional=True, **options)
    batch, size = 4, module.proj_size or 7
    states: Any = (
        [torch.randn(4, batch, size), torch.randn(4, batch, 7)] if kind is nn.LSTM else torch.randn(4, batch, 7)
    )
    packet = getattr(torch.ops.aten, {"tanh": "rnn_tanh", "relu": "rnn_relu", "gru": "gru"}.get(name, "lstm"))
    rest = (list(module._flat_weights), bias, 2, 0.0, False, True)
    x = torch.randn(batch, 6, 5)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 4, 1]), batch_first=True)
    for operator, args in (
        (packet.input, (x, states, *rest, True)),
        (packet.data, (packed.data, packed.batch_sizes, states, *rest)),
    ):
        for ours, theirs in zip(called(operator, *args), operator(*args), strict=True):
            torch.testing.assert_close(ours, theirs)


@torch.no_grad()
def test_dropout_between_layers() -> None:
    """All of the first layer's results are dropped, so that the second one sees zeros."""
    module = nn.GRU(5, 7, 2)
    x, state = torch.randn(6, 2, 5), torch.zeros(2, 2, 7)
    made, _ = called(torch.ops.aten.gru.input, x, state, list(module._flat_weights), True, 2, 1.0, True, False, False)
    second = nn.GRU(7, 7)
    second.load_state_dict({k.replace("l1", "l0"): v for k, v in module.state_dict().items() if "l1" in k})
    torch.testing.assert_close(made, second(torch.zeros(6, 2, 7))[0])


def test_a_sequence_is_a_loop() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lstm(x)[0]

    module, x = Model().eval(), torch.randn(50, 2, 4)
    program = sx_torch.compile(module, (x,))
    assert program.stablehlo.count("stablehlo.while") == 1
    with torch.no_grad():
        torch.testing.assert_close(program(x), module(x))


def test_a_custom_operator_is_its_python_function() -> None:
    @torch.library.custom_op("stablexla_tests::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        made = x.clone()
        made[1:] *= by
        return made

    scaled.register_fake(lambda x, by: torch.empty_like(x))
    agrees(lambda x: scaled(x, 3.0), torch.randn(4))


def test_tensors_in_the_place_of_others() -> None:
    """A decomposition for one optional tensor is not that for another one."""
    x, factor = torch.randn(3, 4), torch.rand(4)

    @torch.library.custom_op("stablexla_tests::either", mutates_args=())
    def either(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        return x + bias if weight is None else x * weight

    either.register_fake(lambda x, weight, bias: torch.empty_like(x))
    agrees(lambda x, f: (either(x, f, None), either(x, None, f)), x, factor)
