"""Whole models of PyTorch on several engines: right or not, forward and in training, and times.

    python -m benchmarks.pytorch                            every model that is installed, on stablexla
    python -m benchmarks.pytorch --only 'resnet50|bert' --engines stablexla,frozen,inductor,onnxruntime,openvino

Models in bf16 have a page of their own, of a processor with instructions for it: `--only bf16`, and
`--markdown docs/pytorch_models_bf16.md`; so have models with frozen weights on such a processor: `--engines
frozen,onnxruntime,openvino`, and `--markdown docs/pytorch_models_frozen.md`; and networks that were quantized after
their training: `--only int8`, the same engines, and `--markdown docs/pytorch_models_int8.md`.

Each model has random weights in its published size, and each engine a process of its own, with empty caches and all
processors. Engines are `stablexla`, which is `torch.compile(model, backend="stablexla")`, `exported`, which is
`torch.export` and `stablexla.interop.torch`, `frozen`, the same with `freeze=True`, eager PyTorch, Inductor, and what
models are deployed on. Results are without gradients, and held against eager PyTorch's; `training` are three steps of
SGD through `torch.compile`, whose losses are held against eager PyTorch's.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from benchmarks import pytorch_int8
from benchmarks.pytorch_models import MODELS, Made, in_type
from stablexla.dialects.display.tables import console, show_table

LIMIT = 600
"""Seconds for a model."""


@dataclass
class Row:
    """The outcomes and the times of a model, by engine.

    Attributes:
        outcomes: "right" or what went wrong; "training" is among them.
        compile: seconds up to the first result, of what is compiled.
        run: the least seconds of a later call.
    """

    name: str
    outcomes: dict[str, str] = field(default_factory=dict)
    compile: dict[str, float] = field(default_factory=dict)
    run: dict[str, float] = field(default_factory=dict)

    def take(self, other: Row) -> None:
        """Put in what another measurement of the model has."""
        self.outcomes |= other.outcomes
        self.compile |= other.compile
        self.run |= other.run


Call = Callable[[], torch.Tensor]
ENGINES: dict[str, Callable[[nn.Module, tuple[Any, ...]], Call]] = {}
PACKAGES = {"onnxruntime": ("onnxruntime", "onnxscript"), "openvino": ("openvino",)}
"""Packages that engines import beside PyTorch."""


def engine(function: Callable[[nn.Module, tuple[Any, ...]], Call]) -> Callable[[nn.Module, tuple[Any, ...]], Call]:
    """Enter an engine: a function that compiles a module for its inputs, and returns its call."""
    ENGINES[function.__name__] = function
    return function


@engine
def stablexla(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    from stablexla.interop.torch import backend

    return _called(torch.compile(module, backend=backend), inputs)


@engine
def exported(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    from stablexla.interop import torch as interop

    return _called(interop.from_exported(torch.export.export(module, inputs, strict=False)), inputs)


@engine
def frozen(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    from stablexla.interop import torch as interop

    return _called(interop.from_exported(torch.export.export(module, inputs, strict=False), freeze=True), inputs)


@engine
def eager(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    return _called(module, inputs)


@engine
def inductor(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    return _called(torch.compile(module), inputs)


@engine
def onnxruntime(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    made = torch.onnx.export(module, inputs, dynamo=True, verbose=False)
    with TemporaryDirectory() as folder:  # weights of over 2 GiB are files of their own
        made.save(f"{folder}/model.onnx")
        return _onnx_in_onnxruntime(Path(folder, "model.onnx"), inputs)


def _onnx_in_onnxruntime(file: Path, inputs: tuple[Any, ...]) -> Call:
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    given = {each.name: value.numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
    return lambda: torch.from_numpy(session.run(None, given)[0])


@engine
def openvino(module: nn.Module, inputs: tuple[Any, ...]) -> Call:
    vino = import_module("openvino")
    narrow = _is_narrow(module)
    if narrow:  # it narrows wide models itself
        module, inputs = in_type((module, inputs), torch.float32)
    program = torch.export.export(module, inputs, strict=False)
    return _in_openvino(vino.convert_model(program), inputs, INFERENCE_PRECISION_HINT="bf16" if narrow else "f32")


def _onnx_in_openvino(file: Path, inputs: tuple[Any, ...]) -> Call:
    return _in_openvino(import_module("openvino").Core().read_model(file), inputs)


def _in_openvino(program: Any, inputs: tuple[Any, ...], **options: str) -> Call:
    given = [value.numpy() for value in inputs]
    threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    made = import_module("openvino").compile_model(program, "CPU", threads | options)
    return lambda: torch.from_numpy(made(given, share_inputs=True)[0])


_ON_ONNX = {"onnxruntime": _onnx_in_onnxruntime, "openvino": _onnx_in_openvino}
"""Engines that are given a quantized model as a file of ONNX."""


def _called(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Call:
    return lambda: function(*inputs)


def measure(name: str, what: str) -> Row:
    """Run a model on an engine, or in training, in this process."""
    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    make = partial(_random, MODELS[name][0])
    if what == "training":
        return Row(name, {what: _trained(make, 2e-2 if "autocast" in name else 2e-3)})
    module, inputs = make()
    module.eval()
    if name.endswith(pytorch_int8.SUFFIX):
        return _measured_int8(name, what, module, inputs)
    narrow = _is_narrow(module)
    with torch.no_grad():
        wanted = module(*inputs)
        start = time.perf_counter()
        reason, (call, made) = _tried(partial(_first_call, partial(ENGINES[what], module, inputs)), (None, None))
        seconds = time.perf_counter() - start
        if made is None:
            return Row(name, {what: reason})
        outcome = _narrow_outcome(make, made, wanted) if narrow else _outcome(made, wanted)
        return Row(name, {what: outcome}, {} if what == "eager" else {what: seconds}, {what: _seconds(call)})


def _measured_int8(name: str, what: str, module: nn.Module, inputs: tuple[Any, ...]) -> Row:
    """Run a quantized model: quantization is no part of compiling."""
    with torch.no_grad():
        pytorch_int8.adapt(module, inputs)
        wanted, small = module(*inputs), pytorch_int8.quantized(module, inputs)
        with TemporaryDirectory() as folder:
            if what in _ON_ONNX:
                make = partial(_ON_ONNX[what], pytorch_int8.onnx_file(module, inputs, Path(folder)), inputs)
            else:
                make = partial(ENGINES[what], small, inputs)
            start = time.perf_counter()
            reason, (call, made) = _tried(partial(_first_call, make), (None, None))
            # A file of ONNX has been captured already.
            seconds = {} if what == "eager" or what in _ON_ONNX else {what: time.perf_counter() - start}
        if made is None:
            return Row(name, {what: reason})
        far, apart = (float((x - wanted).abs().max() / wanted.abs().max()) for x in (small(*inputs), made))
        most = pytorch_int8.FARTHEST if what in _ON_ONNX else max(2e-2, 1.5 * far)
        outcome = "right" if apart < most else f"{apart:.0e} from f32, and eager PyTorch {far:.0e}"
        return Row(name, {what: outcome}, seconds, {what: _seconds(call)})


def _first_call(make: Callable[[], Call]) -> tuple[Call, torch.Tensor]:
    call = make()
    return call, call()


def _random(make: Callable[[], Made]) -> Made:
    """Make a model with random parameters where they begin as zeros or ones, as heads and normalisations do.

    Results then depend on all of it, and no two layers share what is made of equal numbers.
    """
    module, inputs = make()
    with torch.no_grad():
        for name, each in [*module.named_parameters(), *module.named_buffers()]:
            if not each.is_floating_point() or (each != each.flatten()[0]).any():
                continue
            if not each.any():
                each.normal_(0, 0.02)
            elif each.dim() == 1 and name.endswith(("weight", "running_var")):
                each.uniform_(0.9, 1.1)
    return module, inputs


def _trained(make: Callable[[], Made], tolerance: float) -> str:
    """Return whether three steps of training have the losses of eager PyTorch."""
    from stablexla.interop.torch import backend

    losses = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        module, inputs = make()
        module.train()
        _without_dropout(module)
        step = torch.compile(module, backend=backend) if is_compiled else module
        optimizer = torch.optim.SGD(module.parameters(), 1e-3)
        found = []
        for _ in range(3):
            reason, loss = _tried(partial(_step, step, inputs, optimizer), None)
            if loss is None:
                return reason
            found.append(loss)
        losses.append(found)
    apart = max(abs(ours - theirs) / abs(theirs) for theirs, ours in zip(*losses, strict=True))
    return "right" if apart < tolerance else f"losses {losses[1]}, not {losses[0]}"


def _step(module: Callable[..., Any], inputs: Sequence[Any], optimizer: torch.optim.Optimizer) -> float:
    """Make a step of training, and return the loss."""
    loss = module(*inputs).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def _without_dropout(module: nn.Module) -> None:
    """Turn off random numbers, which are other ones than eager PyTorch's."""
    for each in module.modules():
        if isinstance(each, nn.modules.dropout._DropoutNd) or type(each).__name__ in ("DropPath", "StochasticDepth"):
            rates = ("p", "drop_prob")
        else:
            rates = ("drop_rate",)  # of a call of the function
        for rate in rates:
            if isinstance(getattr(each, rate, None), float):
                setattr(each, rate, 0.0)


def _is_narrow(module: nn.Module) -> bool:
    """Whether a module's parameters are bf16; under autocast they are not."""
    return any(each.dtype is torch.bfloat16 for each in module.parameters())


def _narrow_outcome(make: Callable[[], Made], made: torch.Tensor, eager: torch.Tensor) -> str:
    """Tell whether a result in bf16 is as near to the model's in f32, of the same numbers, as eager PyTorch's."""
    torch.manual_seed(0)
    module, inputs = in_type(make(), torch.float32)
    wanted = module.eval()(*inputs)
    far, apart = (float((x - wanted).abs().max() / wanted.abs().max()) for x in (eager, made))
    return "right" if apart < max(1e-2, 1.5 * far) else f"{apart:.0e} from f32, and eager PyTorch {far:.0e}"


def _outcome(made: torch.Tensor, wanted: torch.Tensor) -> str:
    apart = float((made - wanted).abs().max() / wanted.abs().max())
    return "right" if apart < (3e-2 if wanted.dtype is torch.bfloat16 else 1e-3) else f"{apart:.0e} apart"


def _tried(function: Callable[[], Any], otherwise: Any) -> tuple[str, Any]:
    """Return what a function returns, or why it does not."""
    try:
        return "right", function()
    except Exception as error:
        told = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")
        return told[:300], otherwise


def _seconds(function: Callable[[], Any], runs: int = 5, total: float = 1.0) -> float:
    """Return the least seconds of some calls, of at least `total` in all: a pool's threads may sleep at first."""
    function()
    found: list[float] = []
    while len(found) < runs or sum(found) < total:
        found.append(_once(function))
    return min(found)


def _once(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# ---- the command -----------------------------------------------------------------------------------------------------


def rows(names: Sequence[str], what: Sequence[str]) -> Iterator[Row]:
    """Measure models, on each engine in a process of its own."""
    for name in names:
        row = Row(name)
        for each in what:
            row.take(_in_process(name, each))
        yield row


def _in_process(name: str, what: str) -> Row:
    command = [sys.executable, "-m", "benchmarks.pytorch", "--one", name, "--engines", what]
    with TemporaryDirectory() as empty:  # nothing that was compiled before is found
        given = {**os.environ, "XDG_CACHE_HOME": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=given)
        except subprocess.TimeoutExpired:
            return Row(name, {what: f"more than {LIMIT} s"})
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
    told = [*done.stderr.strip().splitlines(), f"exit {done.returncode}"]
    return Row(**json.loads(lines[-1])) if lines else Row(name, {what: told[0 if len(told) == 1 else -2][:300]})


PAGE = Path(__file__).resolve().parents[1] / "docs" / "pytorch_models.md"
HEAD = """# PyTorch's models{title}

Models of torchvision, timm, transformers and diffusers, and some of `benchmarks/pytorch_models.py`'s own, in their
published sizes with random weights, on stablexla and on other engines: made by `{command}`,
in several runs with `--only` and `--engines`; torch {torch} on {processor}, cores used {cores}.

- `stablexla` is `torch.compile(model, backend="stablexla")` without gradients, `exported` is `torch.export` and
  `stablexla.interop.torch.from_exported`, `frozen` the same with `freeze=True`: results held against eager PyTorch's,
  in bf16 and in int8 against those of the same numbers in f32, from which they may be as far as eager PyTorch's are.
  How networks are quantized says `benchmarks/pytorch_int8.py`: engines that do it themselves may be farther.
- `training` are three steps of SGD through `torch.compile`, held against the losses of eager PyTorch.
- Seconds of compiling are up to the first result, with empty caches, capture by PyTorch included; milliseconds of
  running are the least of some calls. Each engine has a process of its own, and all processors.
- Ratios are the other engine's time over stablexla's: above 1, stablexla is faster.

"""
TITLES = {", bf16": " in bf16", pytorch_int8.SUFFIX: " in int8"}
OUTCOMES = ("stablexla", "training", "exported", "frozen")
OTHERS = ("eager", "inductor", "onnxruntime", "openvino")


def page(made: Sequence[Row]) -> str:
    """Return docs/pytorch_models.md."""
    from benchmarks.run import describe_machine

    processor = describe_machine([], None)
    command = "python -m benchmarks.pytorch --json FILE --markdown"
    title = next((text for end, text in TITLES.items() if all(row.name.endswith(end) for row in made)), "")
    if {what for row in made for what in row.outcomes if what in OUTCOMES} == {"frozen"}:
        title += ", with frozen weights"
    parts = [HEAD.format(title=title, torch=torch.__version__.partition("+")[0], cores=processor["cores used"],
                         command=command, **processor).rstrip()]  # fmt: skip
    right = sum({row.outcomes.get(what, "right") for what in OUTCOMES} == {"right"} for row in made)
    parts.append(f"{right} of {len(made)} models are right in all that was tried.")
    parts.append(_table(["model", *OUTCOMES], [[row.name, *map(partial(_told, row), OUTCOMES)] for row in made]))
    for title, ours, times, scale in (
        ("Compiling, seconds", "stablexla", "compile", 1.0),
        ("Compiling an exported program, seconds", "frozen", "compile", 1.0),
        ("Running, milliseconds", "stablexla", "run", 1e3),
        ("Running with frozen weights, milliseconds", "frozen", "run", 1e3),
    ):
        parts += _beside(title, ours, [(row.name, getattr(row, times)) for row in made], scale)
    wrong = [f"- {row.name}, {what}: {told}" for row in made for what, told in row.outcomes.items() if told != "right"]
    parts += ["## What is not right", "\n".join(wrong)] if wrong else []
    return "\n\n".join(parts) + "\n"


def _beside(title: str, ours: str, times: Sequence[tuple[str, dict[str, float]]], scale: float) -> list[str]:
    """Return a table of an engine's times beside those of others, each with its ratio, and the best of them."""
    times = [(name, each) for name, each in times if ours in each and any(other in each for other in OTHERS)]
    others = [other for other in OTHERS if any(other in each for _, each in times)]
    ratios: dict[str, list[float]] = {other: [] for other in [*others, "best"]}
    lines = []
    for name, each in times:
        line = [name, f"{each[ours] * scale:.3g}"]
        found = {other: each[other] for other in others if other in each}
        for other in [*others, "best"]:
            theirs = min(found.values()) if other == "best" else found.get(other, 0.0)
            if theirs:
                ratios[other].append(theirs / each[ours])
            line += [f"{theirs * scale:.3g}"] if other != "best" and theirs else [""] if other != "best" else []
            line += [f"{theirs / each[ours]:.2f}" if theirs else ""]
        lines.append(line)
    if not lines:
        return []
    heads = ["model", ours, *(head for other in others for head in (other, "ratio")), "best / ours"]
    means = ", ".join(f"{other} {geometric_mean(each):.2f}" for other, each in ratios.items() if each)
    return [f"## {title}", f"Geometric means of the ratios: {means}.", _table(heads, lines)]


def _told(row: Row, what: str) -> str:
    told = row.outcomes.get(what, "")
    return told if told in ("", "right") else "no"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = "|---|" + ("---:|" if "ratio" in heads else "---|") * (len(heads) - 1)
    return "\n".join([f"| {' | '.join(heads)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def merged(file: Path, made: Sequence[Row]) -> list[Row]:
    """Put rows into a file beside those of earlier runs, which keep what was not measured again, and return all."""
    known = {each["name"]: Row(**each) for each in json.loads(file.read_text())} if file.exists() else {}
    for row in made:
        known.setdefault(row.name, Row(row.name)).take(row)
    every = [known[name] for name in MODELS if name in known]
    file.write_text(json.dumps([asdict(row) for row in every], indent=1) + "\n")
    return every


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that a model's name matches")
    parser.add_argument(
        "--engines", default="stablexla,training,exported,eager",
        help=f"of {', '.join(ENGINES)}, and training; or all (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="put the rows there, beside those of earlier runs")
    parser.add_argument(
        "--markdown", nargs="?", type=Path, const=PAGE, metavar="PAGE",
        help=f"write a page of all that FILE has, {PAGE.name} or another",
    )  # fmt: skip
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    what = ["training", *ENGINES] if given.engines == "all" else given.engines.split(",")
    if not {*what} <= {"training", *ENGINES}:
        parser.error(f"--engines are of {', '.join(ENGINES)} and training, not {given.engines}")
    if given.one:
        print(json.dumps(asdict(measure(given.one, what[0]))))
        return 0
    missing = [each for each in what if not all(map(find_spec, PACKAGES.get(each, ())))]
    if missing:
        print(f"left out, as not installed: {', '.join(missing)}", file=sys.stderr)
    what = [each for each in what if each not in missing]
    names = [name for name, (_, needs) in MODELS.items() if re.search(given.only, name) and all(map(find_spec, needs))]
    made: list[Row] = []
    every: list[Row] = []
    for row in rows(names, what):
        made.append(row)
        print("  ".join(_cells(row, what)), file=sys.stderr, flush=True)
        every = merged(given.json, [row]) if given.json else made
    every = every or (merged(given.json, []) if given.json else [])
    if given.markdown and every:
        given.markdown.write_text(page(every))
    heads = ["model", *(f"{each}, ms" if each in ENGINES else each for each in what)]
    show_table(console(), heads, [_cells(row, what) for row in made], heads[1:])
    return 0 if all(told == "right" for row in made for told in row.outcomes.values()) else 1


def _cells(row: Row, what: Sequence[str]) -> list[str]:
    """Return a row of the table: milliseconds, or what went wrong."""
    return [row.name, *(
        f"{row.run[each] * 1e3:.3g}" if row.outcomes[each] == "right" and each in row.run else row.outcomes[each][:30]
        for each in what
    )]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
