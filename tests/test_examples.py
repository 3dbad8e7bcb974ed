"""The examples do what they say. Oracle of the training: the same network and steps in numpy, in float64."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from benchmarks.collectives.over_mpi import find_mpiexec
from tests.loading import load_file
from tests.oracles import xla
from tests.served import serving

EXAMPLES = Path(__file__).parents[1] / "examples"


LIBRARIES = (
    "stablexla.interop.jax.jit",
    "stablexla.interop.torch",
    "torch._dynamo",
    "sklearn.datasets",
    "rich.progress",
)


class Examples:
    """The examples as commands, which fork from a process that has imported the libraries."""

    def __init__(self, command: list[str]) -> None:
        self.command = [*command, "python"]

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.command, str(EXAMPLES / name), *arguments], capture_output=True, text=True)

    def printed_by(self, name: str, *arguments: str) -> str:
        """Standard output of an example that exits with 0 and writes nothing on standard error."""
        done = self.run(name, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    with serving(tmp_path_factory.mktemp("served"), *LIBRARIES) as command:
        yield Examples(command)


@pytest.fixture(scope="module")
def digits() -> ModuleType:
    return load_file(EXAMPLES / "digits.py")


IMAGES = 80
"""Two batches and a half: the last one shares rows with the one before it."""


@pytest.fixture(scope="module")
def one_device(digits: ModuleType) -> sx.Executable:
    """An epoch."""
    return sx.compile(digits.epoch_computation(IMAGES))


def epoch_in_numpy(
    network: Any, velocity: Any, images: np.ndarray, targets: np.ndarray, rate: float, batch: int, momentum: float
) -> tuple[Any, float]:
    """An epoch of the same training; the network after it, and the mean loss."""
    network = [[w.astype(np.float64) for w in layer] for layer in network]
    velocity = [[v.astype(np.float64) for v in layer] for layer in velocity]
    losses = []
    for first in range(0, len(images), batch):
        first = min(first, len(images) - batch)
        values = [images[first : first + batch].astype(np.float64)]
        for weights, bias in network:
            values.append(values[-1] @ weights + bias)
            if len(values) <= len(network):
                values[-1] = np.maximum(values[-1], 0)
        wanted = targets[first : first + batch]
        probabilities = np.exp(values[-1]) / np.exp(values[-1]).sum(1, keepdims=True)
        losses.append(-np.log((probabilities * wanted).sum(1)).mean())
        gradient = (probabilities - wanted) / batch
        for place in reversed(range(len(network))):
            own = values[place].T @ gradient, gradient.sum(0)
            gradient = (gradient @ network[place][0].T) * (values[place] > 0)
            velocity[place] = [momentum * v - rate * g for v, g in zip(velocity[place], own)]
        network = [[w + v for w, v in zip(*each)] for each in zip(network, velocity)]
    return network, float(np.mean(losses))


def test_an_epoch_is_what_numpy_makes_of_it(digits: ModuleType, one_device: sx.Executable):
    rng = np.random.default_rng(1)
    x = rng.random((IMAGES, digits.WIDTHS[0]), np.float32)
    targets = np.eye(digits.WIDTHS[-1], dtype=np.float32)[rng.integers(0, digits.WIDTHS[-1], IMAGES)]
    network = digits.first_network(rng)
    velocity = tuple(tuple(rng.standard_normal(w.shape).astype(np.float32) / 100 for w in layer) for layer in network)
    rate = np.float32(0.05)
    moved, _, loss = one_device(network, velocity, x, targets, rate)
    wanted, wanted_loss = epoch_in_numpy(network, velocity, x, targets, rate, digits.BATCH, digits.MOMENTUM)
    for layer, wanted_layer in zip(moved, wanted, strict=True):
        for found, right in zip(layer, wanted_layer, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)


def test_the_images_held_out_are_not_trained_with(digits: ModuleType):
    images, classes, held_out, held_out_classes = digits.load_data(np.random.default_rng(0))
    assert len(images) + len(held_out) == 1797
    assert len(held_out) == 1797 // 5
    assert len(classes) == len(images)
    assert len(held_out_classes) == len(held_out)
    assert images.min() == 0
    assert images.max() == 1


def test_digits_are_learnt(examples: Examples):
    printed = examples.printed_by("digits.py")
    assert "held-out digits" in printed
    accuracy = float(printed.partition("% of the held-out images")[0].split()[-1])
    assert accuracy >= 96


@pytest.fixture(scope="module")
def parallel(digits: ModuleType) -> ModuleType:
    assert sys.modules["digits"] is digits  # which it imports
    return load_file(EXAMPLES / "digits_data_parallel.py")


@pytest.mark.parametrize("devices", [2, 4])
def test_an_epoch_of_several_devices_is_that_of_one(
    digits: ModuleType, parallel: ModuleType, one_device: sx.Executable, devices: int
):
    """Oracles: numpy in f64, and the program of one device; equal runs are equal to the bit."""
    rng = np.random.default_rng(3)
    x = rng.random((IMAGES, digits.WIDTHS[0]), np.float32)
    targets = np.eye(digits.WIDTHS[-1], dtype=np.float32)[rng.integers(0, digits.WIDTHS[-1], IMAGES)]
    network = digits.first_network(rng)
    velocity = parallel.zeros_like(network)
    given = network, velocity, x, targets, np.float32(0.05)
    trainer = parallel.Trainer(IMAGES, devices)
    found, speeds, loss = trainer.epoch(*given)
    wanted, wanted_loss = epoch_in_numpy(network, velocity, x, targets, 0.05, digits.BATCH, digits.MOMENTUM)
    alone, alone_speeds, _ = one_device(*given)
    assert loss == pytest.approx(wanted_loss, rel=1e-5)
    for layer, wanted_layer, alone_layer in zip(found, wanted, alone, strict=True):
        for ours, theirs, single in zip(layer, wanted_layer, alone_layer, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(ours, single, rtol=1e-5, atol=1e-6)
    assert parallel.apart(speeds, alone_speeds) < 1e-4
    again = trainer.epoch(*given)
    assert [leaf.tobytes() for leaf in leaves(again)] == [leaf.tobytes() for leaf in leaves((found, speeds, loss))]


def test_digits_are_learnt_on_several_devices(examples: Examples):
    printed = examples.printed_by("digits_data_parallel.py", "--epochs", "10", "--expect", "0.9")
    assert "networks of 4 devices and of one are" in printed


def test_digits_are_learnt_by_several_processes(examples: Examples):
    """The same text under mpiexec, two devices in each process: the loss is equal to the last bit."""
    pytest.importorskip("mpi4py")
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip("mpiexec is not installed")
    program = ["digits_data_parallel.py", "--epochs", "2", "--expect", "0.5"]
    one = examples.run(*program)
    command = [mpiexec, "-n", "2", sys.executable, *program]
    several = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=100)
    assert several.returncode == 0, several.stdout + several.stderr
    told = [next(line for line in done.stdout.splitlines() if "last bit" in line) for done in (one, several)]
    assert told[0] == told[1]


def test_digits_says_when_too_few_are_recognised(examples: Examples):
    done = examples.run("digits.py", "--epochs", "1", "--expect", "0.999")
    assert done.returncode == 1, done.stderr
    assert "less than the 100% asked for" in done.stdout


def leaves(tree: Any) -> list[np.ndarray]:
    """The arrays of nested tuples, from left to right."""
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple) else [tree]


def test_an_epoch_of_the_convolutional_network_is_what_xla_makes_of_it():
    """Its shuffling, convolutions, pooling, normalisation, dropout and all gradients; the next state to the bit."""
    convnet = load_file(EXAMPLES / "convnet.py")
    rng = np.random.default_rng(2)
    images = 2 * convnet.BATCH + 5
    network = convnet.first_network(rng)
    velocity = tuple(tuple(np.zeros_like(numbers) for numbers in layer) for layer in network)
    averages = tuple((np.zeros(n, np.float32), np.ones(n, np.float32)) for n in convnet.CHANNELS[1:])
    x = rng.random((images, convnet.SIDE, convnet.SIDE, 1), np.float32)
    classes = rng.integers(0, convnet.CLASSES, images).astype(np.int32)
    computation = convnet.epoch_computation(images)
    given = (network, velocity, averages, x, classes, np.float32(0.05), np.array([7, 0], np.uint64))
    found = leaves(sx.compile(computation)(*given))
    wanted = xla(str(computation), leaves(given))
    for ours, theirs in zip(found[:-1], wanted[:-1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found[-1], wanted[-1])


def test_the_convolutional_network_learns(examples: Examples):
    assert "359 held-out digits" in examples.printed_by("convnet.py", "--epochs", "3", "--expect", "0.9")


def test_a_file_that_jax_wrote_runs(examples: Examples):
    assert "largest difference from numpy" in examples.printed_by("stablehlo_file.py")


def test_a_stage_of_a_file_is_printed(examples: Examples):
    assert "linalg.generic" in examples.printed_by("stablehlo_file.py", "--ir", "kernels")


def test_a_file_that_is_not_there(examples: Examples):
    done = examples.run("stablehlo_file.py", "nowhere.mlir")
    assert done.returncode == 1
    assert done.stderr == "nowhere.mlir: cannot be read: No such file or directory\n"


def test_the_file_is_what_jax_writes():
    """JAX's own text of the function in make_mlp_jax.py; other versions may write it otherwise."""
    jax = pytest.importorskip("jax")
    text = (EXAMPLES / "mlp_jax.mlir").read_text()
    if f"JAX {jax.__version__}:" not in text.splitlines()[0]:
        pytest.skip(f"the file was written by another JAX than {jax.__version__}")
    assert load_file(EXAMPLES / "make_mlp_jax.py").text() == text


def test_a_module_of_pytorch(examples: Examples):
    done = examples.run("torch_module.py", "--batch", "2")
    assert done.returncode == 0, done.stderr
    difference = float(done.stdout.split("largest difference from PyTorch: ")[1].split()[0])
    assert difference < 1e-6


def test_speech(examples: Examples):
    """Tokens are those of PyTorch's own modules, each chosen after those before it alone."""
    needed("transformers", "torch")
    small = ["--layers", "1", "--width", "32", "--heads", "2", "--words", "50", "--tokens", "3"]
    done = examples.run("speech.py", *small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the tokens are equal" in done.stdout
    assert "times as fast" in done.stdout


@pytest.mark.parametrize("model", ["vit", "resnet"])
def test_photographs(examples: Examples, model: str):
    needed("transformers", "torch")
    done = examples.run("images.py", "--model", model, "--side", "64", "--layers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apart from PyTorch's" in done.stdout


def test_ants(examples: Examples):
    needed("brax")
    done = examples.run("simulation.py", "--ants", "2", "--steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "apart from jax.jit's" in done.stdout


def test_a_regression_is_sampled(examples: Examples):
    """By XLA's chain and by least squares."""
    needed("numpyro")
    done = examples.run("bayesian_regression.py", "--samples", "150", "--warm-up", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deviations apart" in done.stdout


def needed(*libraries: str) -> None:
    """Skip where a library is not installed; importing it here would take as long as the example."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


def test_what_the_examples_of_libraries_share(capsys: Any):
    beside = load_file(EXAMPLES / "beside.py")
    assert beside.are_there("numpy")
    assert not beside.are_there("numpy", "no_such_library")
    assert "needs no_such_library" in capsys.readouterr().err
    assert beside.apart(np.array([1.0, 4.0]), np.array([2.0, 4.0])) == 0.25
    beside.say_speed("it", 0.5, 1.0, "PyTorch")
    assert "2.00 times as fast" in capsys.readouterr().out


def test_a_training_step_in_jax(examples: Examples):
    printed = examples.printed_by("jax_function.py", "--steps", "60", "--points", "128")
    assert float(printed.split("network: ")[1]) < 1e-3


@pytest.fixture(scope="module")
def language_model() -> ModuleType:
    pytest.importorskip("jax")
    return load_file(EXAMPLES / "language_model.py")


SIZES = {
    "layers": 2,
    "width": 64,
    "heads": 4,
    "key-heads": 2,
    "hidden": 128,
    "vocabulary": 64,
    "context": 24,
    "tokens": 12,
}
SMALL = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))]
ONE_LAYER = ["--layers", "1"]


@pytest.mark.parametrize(
    ("kind", "layers", "more"),
    [
        ("f32", 2, []),
        ("f32", 1, ["--temperature", "0.8"]),
        # Sums are rounded to 8 bits, so that their order decides near ties. With these weights the likeliest logit is
        # 0.18 above the next at every token, and errors are 0.01.
        ("bf16", 2, ["--seed", "291"]),
        ("int8", 1, []),
        ("int8", 1, ["--temperature", "0.8"]),
        ("int4", 1, []),
    ],
)
def test_a_language_model_generates_what_jax_does(
    language_model: ModuleType, capsys: Any, kind: str, layers: int, more: list[str]
):
    done = language_model.main([*SMALL, "--layers", str(layers), "--type", kind, *more, "--compare"])
    printed = capsys.readouterr()
    assert done == 0, printed.out + printed.err
    assert "the tokens are equal" in printed.out
    tokens = printed.out.split("tokens: ")[1].splitlines()[0].split()
    assert len(tokens) == 12
    assert len(set(tokens)) > 4  # no model that always says the same
    for said in ("tokens a second", "key-value cache", "temporaries", "GB/s of a copy"):
        assert said in printed.out


def test_a_language_model_says_how_fast_it_is(examples: Examples):
    assert "tokens a second" in examples.printed_by("language_model.py", *SMALL, *ONE_LAYER, "--type", "int4")


def test_a_language_model_with_a_cache_says_what_it_says_without(language_model: ModuleType):
    """Its tokens one by one, and some again from all tokens before them at once; the caches stay where they are."""
    size = language_model.Size(2, 64, 4, 2, 128, 64, 24)
    weights = language_model.random_weights(size, 1)
    decoder = language_model.JaxDecoder(weights, size, 0.0, 0)
    text, places = [3, 1, 4], []
    text.append(decoder(text, 0))
    for _ in range(6):
        places.append([cache.unsafe_buffer_pointer() for pair in decoder.caches for cache in pair])
        text.append(decoder(text[-1:], len(text) - 1))
    assert len({tuple(sorted(each)) for each in places}) == 1
    for count in (6, 9):
        assert language_model.JaxDecoder(weights, size, 0.0, 0)(text[:count], 0) == text[count]


def test_a_language_model_of_transformers_generates_the_same_tokens(language_model: ModuleType, capsys: Any):
    """The one of transformers is compared with its own `generate`."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    said = []
    for source in ("jax", "transformers"):
        assert language_model.main([*SMALL, "--type", "int8", "--from", source, "--compare"]) == 0
        said.append(capsys.readouterr().out.split("tokens: ")[1].splitlines()[0])
    assert said[0] == said[1]


def test_a_language_model_without_transformers(language_model: ModuleType, capsys: Any, monkeypatch: Any):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert language_model.main([*SMALL, "--from", "transformers"]) == 2
    assert "pip install" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "steps"), [("int8", 127), ("int4", 7)])
def test_weights_of_a_language_model_are_rounded_to_the_nearest_step(language_model: ModuleType, kind: str, steps: int):
    matrix = np.random.default_rng(0).standard_normal((5, 192), np.float32)
    stored = language_model.converted("x.weight", matrix, kind)
    assert stored["x.weight"].nbytes == matrix.size * (1 if kind == "int8" else 0.5)
    groups = matrix.reshape(5, -1, 64 if kind == "int4" else 192)
    wrong = np.abs(np.asarray(language_model.dequantised(stored, "x.weight")).reshape(groups.shape) - groups)
    assert np.all(wrong <= np.abs(groups).max(2, keepdims=True) / steps * 0.5001)


def test_weights_of_a_language_model_in_a_file(language_model: ModuleType, tmp_path: Path):
    """Read back, and read by the package `safetensors` where it is installed."""
    size = language_model.Size(1, 64, 2, 1, 64, 16, 8)
    weights: dict[str, np.ndarray] = {}
    for name, array in language_model.random_weights(size, 0).items():
        for kind in language_model.TYPES:
            weights |= {f"{kind} {key}": a for key, a in language_model.converted(name, array, kind).items()}
    path = tmp_path / "all.safetensors"
    language_model.save_weights(path, weights)
    found = language_model.load_weights(path)
    assert list(found) == list(weights)
    for name, array in weights.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    safetensors = pytest.importorskip("safetensors.numpy")
    for name, array in safetensors.load_file(path).items():
        np.testing.assert_array_equal(array, weights[name])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--width", "66"], "--width 66 is no multiple of 2 x --heads 4"),
        (["--key-heads", "3"], "no multiple of --key-heads 3"),
        (["--width", "32", "--type", "int4"], "multiples of 64"),
        (["--tokens", "40"], "over --context 24"),
        (["--tokens", "1"], "too few"),
        (["--prompt", "64"], "not between 0 and --vocabulary 64"),
    ],
)
def test_sizes_of_a_language_model_that_do_not_fit(
    language_model: ModuleType, capsys: Any, given: list[str], said: str
):
    assert language_model.main([*SMALL, *given]) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_another_language_model(language_model: ModuleType, capsys: Any, tmp_path: Path):
    given = [*SMALL, *ONE_LAYER, "--weights", str(path := tmp_path / "model.safetensors")]
    assert language_model.main(given) == 0
    first = capsys.readouterr().out.split("tokens: ")[1].splitlines()[0]
    assert language_model.main([*given, "--seed", "7"]) == 0  # of the file, not of the seed
    assert capsys.readouterr().out.split("tokens: ")[1].splitlines()[0] == first
    assert language_model.main([*given, "--layers", "2"]) == 2
    assert "model.layers.1.input_layernorm.weight is not there" in capsys.readouterr().err
    path.write_bytes(b"no weights at all")
    assert language_model.main(given) == 2
    assert "no safetensors file" in capsys.readouterr().err


def test_lowering_rules_of_ones_own(examples: Examples):
    """Against the standard library's and numpy's functions in f64; without its rule the composite overflows."""
    done = examples.run("custom_lowering.py")
    assert done.returncode == 0, done.stderr + done.stdout
    before, after = done.stdout.splitlines()[:2]
    assert "softplus inf" in before
    assert "'example.softplus v0': 'decomposition'" in before
    assert "'example.softplus v0': 'kernel'" in after
    assert "math.log1p" in done.stdout


def test_a_schedule_of_ones_own(examples: Examples):
    """Against numpy's product of the matrices."""
    printed = examples.printed_by("custom_schedule.py", "--size", "64", "--ir")
    assert "the schedule left 16 multiplications" in printed
    assert printed.count("GFLOP/s") == 3
    assert "vector.fma" in printed
    assert examples.run("custom_schedule.py", "--size", "9").returncode == 2


@pytest.mark.parametrize(
    "name",
    [
        "bayesian_regression.py",
        "custom_lowering.py",
        "custom_schedule.py",
        "convnet.py",
        "digits.py",
        "digits_data_parallel.py",
        "images.py",
        "jax_function.py",
        "language_model.py",
        "simulation.py",
        "speech.py",
        "stablehlo_file.py",
        "torch_module.py",
    ],
)
def test_help(examples: Examples, name: str):
    done = examples.run(name, "--help")
    assert done.returncode == 0
    assert "usage:" in done.stdout
