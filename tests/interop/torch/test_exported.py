"""Exported programs: results are compared with eager PyTorch's, which is the oracle here."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import stablexla as sx
from stablexla.interop import torch as sx_torch
from stablexla.interop.torch import progress


def close(result: torch.Tensor, wanted: torch.Tensor) -> None:
    assert result.dtype is wanted.dtype
    torch.testing.assert_close(result, wanted)


class Residual(nn.Module):
    """A block with everything that an image network has: convolution, batch norm, a skip, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(3)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x + self.norm(self.conv(x)))
        return self.head(nn.functional.adaptive_avg_pool2d(self.pool(y), 1).flatten(1))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def test_an_image_network():
    module = Residual().eval()
    x = torch.randn(2, 3, 8, 8)
    program = sx_torch.compile(module, (x,))
    close(program(x), module(x).detach())
    assert "stablehlo.convolution" in program.stablehlo
    assert "TorchProgram(" in repr(program)


def test_attention():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.layer(self.embed(tokens))

    module = Attention().eval()
    tokens = torch.randint(0, 11, (2, 5))
    with torch.no_grad():
        close(sx_torch.compile(module, (tokens,))(tokens), module(tokens))


def test_training_mode_changes_buffers():
    module, twin = Residual().train(), Residual().train()
    twin.load_state_dict(module.state_dict())
    x = torch.randn(4, 3, 8, 8)
    program = sx_torch.compile(module, (x,))
    for _ in range(2):
        close(program(x), twin(x).detach())
    assert int(module.norm.num_batches_tracked) == 2
    close(module.norm.running_var, twin.norm.running_var)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.interpolate(x, scale_factor=1.5, mode="bicubic"),
        lambda x: nn.functional.interpolate(x, size=(5, 9), mode="nearest-exact"),
        lambda x: nn.functional.adaptive_avg_pool2d(x, 3),
        lambda x: nn.functional.adaptive_avg_pool2d(x.contiguous(memory_format=torch.channels_last), 1),
        lambda x: nn.functional.adaptive_avg_pool1d(x.flatten(2).transpose(1, 2), 1),
        lambda x: torch.std_mean(x, 1),
        lambda x: x.clone().mul_(2)[:, 1:].exp_(),
    ],
    ids=["bicubic", "nearest", "pool", "pool_last", "pool_transposed", "std_mean", "in_place"],
)
def test_operations_of_both_tables(function):
    class Module(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(sx_torch.compile(Module(), (x,))(x), function(x))


class Own(nn.Module):
    """In-place operations on a tensor that the module made: alone, seen through a view, and read again."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if self.way == "alone":
            return nn.functional.relu(y, inplace=True) + 1
        if self.way == "a view":
            row = y[0]
            row.add_(1)
            return y
        if self.way == "read again":
            y.add_(x)
            return y * y
        return x.add_(1)


@pytest.mark.parametrize("way", ["alone", "a view", "read again", "the input"])
def test_changes_in_place(way):
    x = torch.randn(3, 4)
    exported = torch.export.export(Own(way), (x.clone(),))
    mine, theirs = x.clone(), x.clone()
    torch.testing.assert_close(sx_torch.from_exported(exported)(mine), Own(way)(theirs))
    torch.testing.assert_close(mine, theirs)


class Scaled(nn.Module):
    """A module in a module: the lines of operations are those of both."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Residual()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        return torch.exp(y)


def lines_of(cls: type[nn.Module], text: str) -> set[int]:
    """The lines of a module that hold a text."""
    lines, first = inspect.getsourcelines(cls)
    return {first + number for number, line in enumerate(lines) if text in line}


@pytest.mark.parametrize("form", ["for inference", "in training", "of unknown sizes", "from a file"])
def test_operations_have_the_lines_of_the_module(form, tmp_path):
    module, x = Scaled(), torch.randn(4, 3, 8, 8)
    sizes = ({0: torch.export.Dim("batch", min=2)},) if form == "of unknown sizes" else None
    exported = torch.export.export(module.train(form == "in training"), (x,), dynamic_shapes=sizes)
    if form == "from a file":
        torch.export.save(exported, tmp_path / "program.pt2")
        exported = torch.export.load(tmp_path / "program.pt2")
    program = sx_torch.from_exported(exported)
    places = {(op.name.partition(".")[2], op.place) for op in program.executable.explain().operations}
    for operation, cls, text in (
        ("convolution", Residual, "self.conv(x)"),
        ("dot_general", Residual, "self.head("),
        ("reduce_window", Residual, "self.pool(y)"),
        ("exponential", Scaled, "exp(y)"),
    ):
        found = {place.line for name, place in places if name == operation}
        assert found
        assert found <= lines_of(cls, text)
    assert not [place for _, place in places if "site-packages" in place.file]


def test_a_slow_activity_is_named_on_a_terminal(monkeypatch, capsys):
    made = []

    class Now:
        def __init__(self, seconds: float, function: Callable[..., None], args: list[str], kwargs: dict) -> None:
            self.start = lambda: function(*args, **kwargs)
            self.cancel = lambda: made.append(seconds)

    monkeypatch.setattr(progress, "Timer", Now)
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with progress.announced("torch.export"):
        pass
    assert capsys.readouterr().err == "stablexla: torch.export ...\n"
    assert made == [2]


def test_parameters_are_read_at_each_call():
    module = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    program = sx_torch.compile(module, (x,))
    with torch.no_grad():
        module.weight.mul_(2)
    close(program(x), module(x).detach())


def test_structures_constants_and_integers():
    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.arange(4)

        def forward(self, x: torch.Tensor, *, named: dict[str, torch.Tensor]) -> dict[str, object]:
            scores = x * named["scale"]
            return {"best": scores.argmax(1), "sum": (scores.sum(), self.table + 2**40)}

    module, x, named = Pairs(), torch.randn(3, 4), {"scale": torch.tensor(2.0)}
    result = sx_torch.compile(module, (x,), {"named": named})(x, named=named)
    wanted = module(x, named=named)
    assert torch.equal(result["best"], wanted["best"])
    assert result["best"].dtype is torch.int64
    close(result["sum"][0], wanted["sum"][0])
    assert torch.equal(result["sum"][1], wanted["sum"][1])


def test_an_input_that_is_changed():
    class Fill(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x.sum()

    x = torch.ones(3)
    program = sx_torch.compile(Fill(), (torch.ones(3),))
    assert float(program(x)) == 6
    assert x.tolist() == [2, 2, 2]


class Rows:
    """A plain object that holds a tensor, as the layers of transformers' `StaticCache` do."""

    def __init__(self) -> None:
        self.rows = torch.zeros(4, 3)


class Cached(nn.Module):
    """Writes rows into a tensor of a plain object, which may be registered as a buffer, too."""

    def __init__(self, registered: str) -> None:
        super().__init__()
        self.cache, self.scale = Rows(), {"constant": torch.tensor(2.0)}
        if registered != "no":
            self.register_buffer("rows", self.cache.rows, persistent=registered == "persistent")

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        self.cache.rows.index_copy_(0, place, x * self.scale["constant"])
        again = self.rows if hasattr(self, "rows") else self.cache.rows
        return self.cache.rows.sum(0), again.clone(), self.cache.rows


@pytest.mark.parametrize("registered", ["no", "not persistent", "persistent"])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_tensor_of_a_plain_object_that_is_changed(registered, is_dynamic):
    module, twin = Cached(registered), Cached(registered)
    shapes = ({0: (count := torch.export.Dim("count", min=1, max=4))}, {0: count}) if is_dynamic else None
    exported = torch.export.export(module, (torch.ones(2, 3), torch.tensor([0, 1])), dynamic_shapes=shapes)
    before = str(exported)
    program = sx_torch.from_exported(exported)
    assert str(exported) == before
    for places in ([2, 0], [3, 2]):
        x, place = torch.randn(len(places), 3), torch.tensor(places)
        for result, wanted in zip(program(x, place), twin(x, place), strict=True):
            close(result, wanted)
        close(module.cache.rows, twin.cache.rows)
        if registered != "no":
            assert module.rows is module.cache.rows


class Caches(nn.Module):
    """Two buffers of one type that change each other, a counter, and results that have the buffers' type."""

    def __init__(self, dtype: torch.dtype, returns_old: bool = False) -> None:
        super().__init__()
        self.returns_old = returns_old
        self.register_buffer("keys", torch.zeros(4, 3, dtype=dtype))
        self.register_buffer("values", torch.ones(4, 3, dtype=dtype))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        old = self.values.clone()
        self.values.add_(self.keys)
        self.keys.mul_(0.5).add_(x)
        self.count.add_(1)
        return old if self.returns_old else x - 1, self.keys + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("returns_old", [False, True])
def test_changed_buffers_are_donated(dtype, returns_old, monkeypatch):
    """But for a program in which a result that the caller keeps could take a buffer's memory."""
    module, twin = Caches(dtype, returns_old), Caches(dtype, returns_old)
    x = torch.randn(4, 3, dtype=dtype)
    program = sx_torch.compile(module, (x,))
    assert (program.executable.aliases == {0: 0, 1: 1, 2: 2}) is not returns_old
    executed, lying = program.executable.execute, []

    def execute(arguments: list[object], **options: bool) -> list[np.ndarray]:
        results = executed(arguments, **options)
        lying[:] = [r.ctypes.data for r in results]
        return results

    monkeypatch.setattr(program.executable, "execute", execute)
    kept = []
    for _ in range(3):
        kept.append((program(x), twin(x)))
        buffers = [buffer.data_ptr() for buffer in module.buffers()]
        assert (lying[:3] == buffers) is not returns_old
    for name, wanted in twin.named_buffers():
        close(getattr(module, name), wanted)
    for results, wanted in kept:  # no later call has written over them
        close(results[0], wanted[0])
        close(results[1], wanted[1])


def test_inputs_that_share_memory_or_are_not_contiguous_are_changed():
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            x.add_(y)
            return x.sum()

    example = torch.ones(4, 4)
    program = sx_torch.compile(Sum(), (example.clone(), example.clone()))
    for given in (lambda x: (x, x), lambda x: (x.t(), x), lambda x: (x[:, ::2].repeat(1, 2), x)):
        mine, theirs = torch.arange(16.0).reshape(4, 4), torch.arange(16.0).reshape(4, 4)
        own, wanted = given(mine), given(theirs)
        program(*own)
        wanted[0].copy_(wanted[0] + wanted[1])
        for one, other in zip(own, wanted, strict=True):
            close(one, other)


def test_autograd_sees_a_donated_change():
    module = Caches(torch.float32)
    program = sx_torch.compile(module, (torch.ones(4, 3),))
    x = torch.ones(4, 3, requires_grad=True)
    product = (x * module.keys).sum()
    program(torch.ones(4, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_dynamic_batch():
    module = Residual().eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = sx_torch.compile(module, (torch.randn(3, 3, 8, 8),), dynamic_shapes={"x": {0: batch}})
    for size in (2, 5):
        x = torch.randn(size, 3, 8, 8)
        close(program(x), module(x).detach())


@pytest.mark.parametrize("least", [{"min": 1, "max": 64}, {}])
def test_two_dynamic_dimensions(least):
    batch, length = torch.export.Dim("batch", **least), torch.export.Dim("length", max=12)
    module = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    program = sx_torch.compile(module, (torch.randn(3, 5, 8),), dynamic_shapes=({0: batch, 1: length},))
    for sizes in ((1, 7), (6, 2), (3, 12)):
        x = torch.randn(*sizes, 8)
        close(program(x), module(x).detach())
    with pytest.raises(sx.ExecutionError, match="<= 12"):
        program(torch.randn(3, 13, 8))


class Concatenation(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cat([a, b]) * a.shape[1]


def test_a_size_that_follows_from_two_others():
    n, m = torch.export.Dim("n"), torch.export.Dim("m")
    given = torch.randn(4, 6), torch.randn(8, 6)
    program = sx_torch.compile(Concatenation(), given, dynamic_shapes=({0: n, 1: m}, {0: 2 * n, 1: m}))
    for rows, columns in ((2, 3), (5, 7)):
        given = torch.randn(rows, columns), torch.randn(2 * rows, columns)
        close(program(*given), Concatenation()(*given))


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def test_dropout_draws_anew_at_each_call():
    x = torch.ones(500, 40)
    program = sx_torch.compile(nn.Dropout(0.25), (x,))
    torch.manual_seed(3)
    first, second = program(x), program(x)
    close(first.unique(), torch.tensor([0.0, 1 / 0.75]))
    for drawn in (first == 0, second == 0):
        assert abs(drawn.double().mean() - 0.25) < 6 * (0.25 * 0.75 / x.numel()) ** 0.5
    assert abs(((first == 0) & (second == 0)).double().mean() - 0.0625) < 6 * (0.0625 / x.numel()) ** 0.5
    torch.manual_seed(3)
    close(program(x), first)


@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (torch.rand_like, 0.5, 12**-0.5),
        (torch.randn_like, 0.0, 1.0),
        (lambda x: torch.bernoulli(x * 0.3), 0.3, 0.21**0.5),
        (lambda x: torch.randint(0, 10, x.shape).double(), 4.5, 8.25**0.5),
        (lambda x: nn.functional.dropout1d(x, 0.5, True), 1.0, 1.0),
        (lambda x: x.uniform_(2, 4), 3.0, 3**-0.5),
    ],
)
def test_random_numbers(draw, mean, deviation):
    x = torch.ones(10000, 1)
    program = sx_torch.compile(Function(draw), (x.clone(),))
    torch.manual_seed(1)
    drawn = program(x.clone())
    assert abs(drawn.double().mean() - mean) < 6 * deviation / x.numel() ** 0.5
    assert abs(drawn.double().std() - deviation) < 6 * deviation / x.numel() ** 0.5
    assert not torch.equal(program(x.clone()), drawn)


class Options(nn.Module):
    def forward(self, a, b=None, *, c=None):
        return a - (0 if b is None else 2 * b) + (0 if c is None else 3 * c)


def test_arguments_by_name():
    a, b, c = torch.tensor([1.0]), torch.tensor([5.0]), torch.tensor([7.0])
    program = sx_torch.compile(Options(), (a, b), {"c": c})
    for result in (program(a, b, c=c), program(a, c=c, b=b), program(c=c, b=b, a=a)):
        close(result, Options()(a, b, c=c))
    with pytest.raises(
        sx.ExecutionError, match=r"exported as program\(a, b, c=\.\.\.\), and called as program\(\.\.\.\)"
    ):
        program(a)
    for args, kwargs in [((a, b, c), {}), ((a,), {"a": a, "c": c}), ((a, b), {"d": c}), ((a, b), {"c": c, "d": c})]:
        with pytest.raises(sx.ExecutionError, match="exported as"):
            program(*args, **kwargs)
    with pytest.raises(sx.ExecutionError, match="structure"):
        program(a, [b], c=c)


def test_arguments_that_were_exported_by_name_in_another_order():
    a, b = torch.tensor([1.0]), torch.tensor([5.0])
    program = sx_torch.compile(Options(), (), {"b": b, "a": a})
    close(program(a=a, b=b), Options()(a, b))
    with pytest.raises(sx.ExecutionError, match="exported as"):
        program(a, b)  # PyTorch's order, not the export's


@pytest.mark.parametrize(
    "function", [lambda x: x * x[0].item(), lambda x: x.nonzero(), lambda x: x[x > 0]], ids=["item", "nonzero", "mask"]
)
def test_results_that_depend_on_numbers(function):
    with pytest.raises(sx.UnsupportedError, match="depends on a tensor's numbers") as caught:
        sx_torch.compile(Function(function), (torch.ones(3),))
    assert caught.value.source.file == __file__
    assert caught.value.operation.startswith("aten.")


def test_what_is_no_module_and_no_tuple():
    with pytest.raises(sx.StablexlaError, match=r"no torch\.nn\.Module but <class"):
        sx_torch.compile(nn.Linear, (torch.ones(3),))
    with pytest.raises(sx.StablexlaError, match="args is a ndarray"):
        sx_torch.compile(nn.ReLU(), np.ones(3))


def test_results_share_memory_with_nothing_that_dies():
    program = sx_torch.compile(nn.Identity(), (torch.zeros(1000),))
    results = [program(torch.full((1000,), float(n))) for n in range(8)]
    assert [float(r.sum()) for r in results] == [1000.0 * n for n in range(8)]


def test_other_arguments_than_exported():
    program = sx_torch.compile(nn.Linear(3, 2), (torch.zeros(4, 3),))
    with pytest.raises(sx.ExecutionError, match=r"exported as program\(input\)"):
        program(torch.zeros(4, 3), torch.zeros(1))
    for given, way_out in (
        (torch.zeros(5, 3), "dynamic_shapes="),
        (torch.zeros(3, 4), ".T"),
        (torch.zeros(4, 3, dtype=torch.float64), ".to(torch.float32)"),
        (torch.zeros(4, 3, dtype=torch.bool), ".to(torch.float32)"),
    ):
        with pytest.raises(sx.ExecutionError, match=r"takes a tensor of f32\[4,3\]") as raised:
            program(given)
        assert raised.value.hint.startswith(way_out)
    np.testing.assert_array_equal(program(torch.zeros(4, 3)).shape, (4, 2))


def test_parameters_have_the_names_of_the_graph():
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    program = sx_torch.compile(module.train(), (torch.zeros(4, 3),))
    for name in ("0.weight", "1.bias", "1.running_mean", "input"):
        assert f'loc("{name}"' in program.stablehlo
    with pytest.raises(sx.ExecutionError, match=r"argument input takes a tensor of f32\[4,3\], but one of f32\[5,3\]"):
        program(torch.zeros(5, 3))


def test_what_is_no_exported_program():
    with pytest.raises(sx.StablexlaError, match="Linear is no exported program"):
        sx_torch.from_exported(nn.Linear(3, 2))


class Odd(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._test_optional_intlist(x.to(torch.int32), None)


def test_an_operator_without_a_rule_names_itself_and_the_line():
    with pytest.raises(sx.UnsupportedError) as caught:
        sx_torch.compile(Odd(), torch.ones(3))
    assert "aten._test_optional_intlist.default(s32[3], None): there is no rule" in str(caught.value)
    assert "test_exported.py" in str(caught.value)
    assert "_test_optional_intlist(x.to(torch.int32), None)" in str(caught.value)


def test_without_torch():
    script = "import sys; sys.modules['torch'] = None\nimport stablexla as sx\nsx.interop.torch.compile"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "pip install 'stablexla[torch]'" in done.stderr


def test_neither_jax_nor_torchax_is_imported():
    script = (
        "import sys, torch, stablexla.interop.torch as sxt\n"
        "sxt.compile(torch.nn.ReLU(), torch.ones(3))(torch.ones(3))\nprint(*{'jax', 'torchax'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == ""
    assert done.stderr == ""


def test_a_gradient_of_an_exported_program_is_refused():
    layer, x = nn.Linear(3, 2), torch.ones(4, 3)
    program = sx_torch.compile(layer, x)
    assert program(x).requires_grad
    with pytest.raises(sx.UnsupportedError, match=r'try: torch.compile\(module, backend="stablexla"\)'):
        (program(x).sum() + layer(x).sum()).backward()
    with torch.no_grad():
        assert not program(x).requires_grad


def test_frozen_parameters_are_constants():
    layer, x = nn.BatchNorm1d(3), torch.randn(4, 3)
    program = sx_torch.compile(layer.train(), x, freeze=True)
    assert [str(p) for p in program.executable.parameters] == ["float32[3]", "float32[3]", "int64[]", "float32[4,3]"]
    twin = nn.BatchNorm1d(3).train()
    close(program(x).detach(), twin(x).detach())
    close(layer.running_mean, twin.running_mean)


def test_frozen_weights_are_held_and_what_is_left_of_them_is_copied():
    """An embedding that is read in place, and a weight that is packed, are as they were when they were compiled."""
    model = nn.Sequential(nn.Embedding(700, 160), nn.Linear(160, 160)).eval()
    tokens = torch.arange(0, 700, 9)
    program = sx_torch.compile(model, tokens, freeze=True)
    wanted = model(tokens).detach()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    close(program(tokens).detach(), wanted)
    bytes_of_weights = sum(4 * p.numel() for p in model.parameters())
    assert program.executable.constant_bytes < 1.1 * bytes_of_weights + 1000


def test_a_frozen_network_of_halves_is_nearer_to_f32_than_an_exact_one():
    torch.manual_seed(3)
    layers = [nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 1), nn.BatchNorm2d(32), nn.SiLU()]
    for norm in layers[1::3]:
        norm.weight.data.uniform_(0.5, 1.5)
        norm.bias.data.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 1.5)
    model, x = nn.Sequential(*layers).eval(), torch.randn(1, 16, 9, 9)
    half, given = model.bfloat16(), x.bfloat16()
    wanted = half.float()(given.float()).detach()
    half = half.bfloat16()
    errors = []
    for exact in (False, True):
        program = sx_torch.compile(half, given, freeze=True, exact=exact)
        assert program.executable.constant_bytes > 0
        errors.append((program(given).detach().float() - wanted).abs().mean().item())
    assert errors[0] < errors[1]
    close(sx_torch.compile(half, given, freeze=True, exact=True)(given).detach(), half(given).detach())


@pytest.mark.parametrize("exact", [True, False])
def test_a_frozen_program_takes_denormal_numbers_for_zero(exact):
    layer, x = nn.Linear(2, 2, bias=False), torch.full((1, 2), 2.0**-100)
    with torch.no_grad():
        layer.weight.fill_(2.0**-40)
        made = sx_torch.compile(layer, x, freeze=True, exact=exact)(x)
    assert made.tolist() == [[2.0**-139 if exact else 0.0] * 2]


class Computed(nn.Module):
    """A function of the input, of a frozen weight and of frozen indices."""

    def __init__(self, forward: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(24, 24) + 0.5)
        self.register_buffer("places", torch.randint(0, 24, (24,)))
        self._forward = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._forward(x, self.weight, self.places)


COMPUTED = {
    "normalized": (lambda x, w, _: x @ nn.functional.batch_norm(w, None, None, training=True).T, ["dot_general"]),
    "a table by its places": (lambda x, w, at: x + w[at].sum(0), ["add"]),
    "views": (lambda x, w, _: x * w.T[3:5].reshape(-1)[:24] + w.view(2, 12, 24)[1, 2], ["multiply", "add"]),
    "parts": (lambda x, w, _: x * w.split([3, 21])[0][1] + w.unbind(1)[2], ["multiply", "add"]),
    "sorted": (lambda x, w, _: x * w.sort(0).values[0] + w.sort(0).indices[1], ["multiply", "convert", "add"]),
    "halves": (lambda x, w, _: x * (w.half() * 3 + 1).float()[0], ["multiply"]),
    "a result": (lambda x, w, _: torch.exp(w) * 2, []),
    "a part of a result": (lambda x, w, _: torch.cat([x, torch.exp(w)]), ["concatenate"]),
    "in a branch": (
        lambda x, w, _: torch.cond(x.sum() > 0, lambda x: x + w.sin(), lambda x: x - w.cos().T, (x,)),
        None,
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_constants_are_folded(name):
    forward, wanted = COMPUTED[name]
    module, x = Computed(forward).eval(), torch.randn(24, 24)
    program = sx_torch.compile(module, x, freeze=True)
    with torch.no_grad():
        close(program(x), module(x))
        close(program(-x), module(-x))
    text = program.executable.ir("source")
    made = [name for name in re.findall(r"stablehlo\.(\w+)", text) if name not in VIEWS]
    assert wanted is None or made == wanted


VIEWS = {"constant", "reshape", "transpose", "broadcast_in_dim", "slice"}


def test_constants_that_grow_or_are_random_are_not_folded():
    module = Computed(lambda x, w, _: x + w[:, None, None].expand(24, 24, 24, 24).sin() + torch.bernoulli(w.sigmoid()))
    program = sx_torch.compile(module.eval(), torch.zeros(24, 24), freeze=True)
    assert program.executable.constant_bytes < 10 * 24 * 24
    with torch.no_grad():
        torch.manual_seed(1)
        one, two = program(torch.zeros(24, 24)), program(torch.zeros(24, 24))
        rest = module.weight[:, None, None].expand(24, 24, 24, 24).sin()
    assert not torch.equal(one, two)
    torch.testing.assert_close((one - rest).round(), one - rest, atol=1e-5, rtol=0)


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_a_normalisation_of_frozen_moments(frozen, affine):
    norm, x = nn.BatchNorm2d(5, affine=affine, eps=1e-3).eval(), torch.randn(2, 5, 3, 4)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 1.5)
    program = sx_torch.compile(norm, x, freeze=frozen)
    close(program(x).detach(), norm(x).detach())
    kinds = [kernel.kind for kernel in program.executable.kernels]
    assert len(kinds) == 1 if frozen else kinds


@pytest.mark.parametrize("weights", ["parameters", "constants"])
def test_an_artifact_runs_elsewhere(weights):
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    special = nn.Sequential(layer, nn.GELU())  # CHLO's erf, which no artifact may hold
    artifact = sx_torch.to_stablehlo(torch.export.export(special, (x,)), version="minimum", weights=weights)
    held = [layer.weight, layer.bias] if weights == "parameters" else []
    made = sx.compile(artifact)(*(t.detach().numpy() for t in [*held, x]))
    torch.testing.assert_close(torch.from_numpy(made), special(x).detach())


def test_other_weights_of_an_artifact_are_refused():
    with pytest.raises(sx.StablexlaError, match='"parameters" or "constants"'):
        sx_torch.to_stablehlo(torch.export.export(nn.Linear(3, 2), (torch.ones(1, 3),)), weights="none")


def test_numbers_and_none_as_arguments():
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor | None, factor: float, mode: str = "a") -> object:
            return {"x": x * factor, "none": None, "two": 2, "mode": mode}

    program = sx_torch.compile(Scaled(), (torch.ones(3), None, 2.5))
    made = program(torch.ones(3), None, 2.5)
    assert (made["none"], made["two"], made["mode"]) == (None, 2, "a")
    close(made["x"], torch.full((3,), 2.5))
    with pytest.raises(sx.ExecutionError, match=r"exported for factor = 2\.5, and called with 3.5"):
        program(torch.ones(3), None, 3.5)
