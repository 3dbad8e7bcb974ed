"""Whole models of PyTorch: right or not, forward and in training, and times beside eager PyTorch and Inductor.

    python -m benchmarks.pytorch                            every model that is installed: outcome and times
    python -m benchmarks.pytorch --only 'resnet50|bert' --inductor

Each model has random weights in its published size, and runs in a process of its own. `forward` is through
`torch.compile(model, backend="stablexla")` without gradients, `training` are three steps of SGD through the same
backend, whose losses are held against eager PyTorch's; `exported` is `torch.export` and `stablexla.interop.torch`.
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
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from benchmarks.real.torch_models import calling, whisper_model
from stablexla.dialects.display.tables import console, show_table

Made = tuple[nn.Module, tuple[Any, ...]]
LIMIT = 600
"""Seconds for a model."""


@dataclass
class Row:
    """The outcome and the times of a model.

    Attributes:
        forward, training, exported: "right", or what went wrong, or "" where it was not tried.
        compile, run, eager: seconds of the first call and of a later one, without gradients, and of eager PyTorch.
        inductor_compile, inductor: the same of Inductor.
    """

    name: str
    forward: str = ""
    training: str = ""
    exported: str = ""
    compile: float = 0.0
    run: float = 0.0
    eager: float = 0.0
    inductor_compile: float = 0.0
    inductor: float = 0.0


MODELS: dict[str, tuple[Callable[[], Made], tuple[str, ...]]] = {}


def model(name: str, *needs: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enter a function that makes a module and its inputs; `needs` are packages beside PyTorch."""

    def register(make: Callable[[], Made]) -> Callable[[], Made]:
        MODELS[name] = (make, needs)
        return make

    return register


# ---- models ----------------------------------------------------------------------------------------------------------


def _first(model: nn.Module, *inputs: torch.Tensor) -> torch.Tensor:
    """Return the one tensor of a model's results: its logits, its last hidden state or its image."""
    made = model(*inputs)
    for name in ("logits", "last_hidden_state", "sample", "out"):
        if name in made:
            return made[name]
    return made[0]


def _vision(name: str, size: int = 224, batch: int = 2) -> None:
    @model(name, "torchvision")
    def make() -> Made:
        import torchvision.models as zoo

        return zoo.get_model(name, weights=None), (torch.randn(batch, 3, size, size),)


for _name in ("resnet18", "resnet50", "mobilenet_v3_large", "efficientnet_b0", "densenet121", "vgg11_bn",
              "squeezenet1_1", "shufflenet_v2_x1_0", "convnext_tiny", "swin_t", "vit_b_16", "regnet_y_400mf",
              "mnasnet1_0"):  # fmt: skip
    _vision(_name)


@model("deeplabv3_mobilenet_v3_large", "torchvision")
def _segmentation() -> Made:
    from torchvision.models.segmentation import deeplabv3_mobilenet_v3_large

    return calling(deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None), _first), (
        torch.randn(2, 3, 160, 160),
    )


@model("ssdlite_backbone", "torchvision")
def _detection() -> Made:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    def heads(detector: nn.Module, x: torch.Tensor) -> torch.Tensor:
        """The network without the choice of boxes, whose number depends on the image."""
        made = detector.head(list(detector.backbone(x).values()))
        return torch.cat([made["bbox_regression"], made["cls_logits"]], -1)

    detector = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None)
    return calling(detector, heads), (torch.randn(2, 3, 320, 320),)


def _timm(name: str, size: int = 224) -> None:
    @model(f"timm {name}", "timm")
    def make() -> Made:
        import timm

        return timm.create_model(name, pretrained=False), (torch.randn(1, 3, size, size),)


for _name in ("resnet50d", "efficientnet_b3", "convnextv2_nano", "vit_small_patch16_224", "deit_tiny_patch16_224",
              "swin_tiny_patch4_window7_224", "mixer_s16_224", "mobilevit_s", "regnetx_008", "resnext50_32x4d",
              "tf_efficientnetv2_b0", "coatnet_nano_rw_224", "beit_base_patch16_224", "cait_xxs24_224", "ghostnet_100",
              "hrnet_w18_small", "levit_128s", "poolformer_s12", "res2net50_26w_4s", "nfnet_l0"):  # fmt: skip
    _timm(_name)


def _words(batch: int = 1, length: int = 128) -> torch.Tensor:
    return torch.randint(0, 1000, (batch, length))


@model("bert-base", "transformers")
def _bert() -> Made:
    from transformers import BertConfig, BertModel

    plain = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return calling(BertModel(plain), _first), (_words(),)


@model("gpt2", "transformers")
def _gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    plain = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return calling(GPT2LMHeadModel(plain), _first), (_words(),)


@model("llama-160m", "transformers")
def _llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    return calling(LlamaForCausalLM(config), _first), (_words(),)


@model("t5-small", "transformers")
def _t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=512, d_ff=2048, num_layers=6, num_heads=8, dropout_rate=0.0, use_cache=False, decoder_start_token_id=0
    )
    return calling(T5ForConditionalGeneration(config), _decoded), (_words(), _words(length=32))


def _decoded(model: nn.Module, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = model(input_ids=source, decoder_input_ids=target).logits
    return made


@model("whisper-tiny", "transformers")
def _whisper() -> Made:
    def decoded(model: nn.Module, sound: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = model(decoder_input_ids=tokens, input_features=sound, use_cache=False).logits
        return made

    return calling(whisper_model(), decoded), (torch.randn(1, 80, 3000), _words(length=16))


@model("vit-base", "transformers")
def _vit() -> Made:
    from transformers import ViTConfig, ViTModel

    return calling(ViTModel(ViTConfig()), _first), (torch.randn(1, 3, 224, 224),)


@model("mamba, 4 layers", "transformers")
def _mamba() -> Made:
    from transformers import MambaConfig, MambaForCausalLM

    four = MambaConfig(num_hidden_layers=4, use_cache=False)
    return calling(MambaForCausalLM(four), _first), (_words(length=64),)


@model("unet", "diffusers")
def _unet() -> Made:
    from diffusers import UNet2DModel

    unet = UNet2DModel(sample_size=32, block_out_channels=(64, 128, 256, 256), layers_per_block=2)
    return calling(unet, _first), (torch.randn(1, 3, 32, 32), torch.tensor([10]))


@model("vae", "diffusers")
def _vae() -> Made:
    from diffusers import AutoencoderKL

    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(64, 128),
    )
    return calling(vae, lambda model, x: model(x, sample_posterior=False).sample), (torch.randn(1, 3, 64, 64),)


@model("lstm language model")
def _lstm() -> Made:
    class Language(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10000, 256)
            self.lstm = nn.LSTM(256, 512, num_layers=2, batch_first=True)
            self.head = nn.Linear(512, 10000)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.head(self.lstm(self.embed(words))[0])
            return made

    return Language(), (_words(4, 35),)


@model("graph network")
def _graph() -> Made:
    class Network(nn.Module):
        """Two layers of messages along edges, summed at their ends by scatter."""

        def __init__(self) -> None:
            super().__init__()
            self.message = nn.ModuleList(nn.Linear(2 * 64, 64) for _ in range(2))
            self.enter, self.leave = nn.Linear(16, 64), nn.Linear(64, 7)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.enter(x))
            for layer in self.message:
                sent = torch.relu(layer(torch.cat([x[edges[0]], x[edges[1]]], 1)))
                x = x + torch.zeros_like(x).index_add(0, edges[1], sent)
            made: torch.Tensor = self.leave(x)
            return made

    return Network(), (torch.randn(2708, 16), torch.randint(0, 2708, (2, 10556)))


@model("vision transformer, bf16 autocast")
def _autocast() -> Made:
    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 192, 16, 16)
            layer = nn.TransformerEncoderLayer(192, 3, 768, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
            self.head = nn.Linear(192, 100)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                made: torch.Tensor = self.head(self.layers(self.patch(x).flatten(2).mT).mean(1))
                return made

    return Transformer(), (torch.randn(2, 3, 224, 224),)


# ---- what is measured ------------------------------------------------------------------------------------------------


def measure(name: str, inductor: bool, training: bool, exported: bool) -> Row:
    """Run a model in this process."""
    torch.manual_seed(0)
    make = partial(_random, MODELS[name][0])
    module, inputs = make()
    module.eval()
    row = Row(name)
    with torch.no_grad():
        wanted = module(*inputs)
        row.eager = _seconds(lambda: module(*inputs))
        compiled = torch.compile(module, backend=_backend())
        start = time.perf_counter()
        row.forward, made = _tried(lambda: compiled(*inputs))
        row.compile = time.perf_counter() - start
        if made is not None:
            row.forward = _outcome(made, wanted)
            row.run = _seconds(lambda: compiled(*inputs))
        if inductor:
            torch._dynamo.reset()
            other = torch.compile(module)
            start = time.perf_counter()
            other(*inputs)
            row.inductor_compile = time.perf_counter() - start
            row.inductor = _seconds(lambda: other(*inputs))
    if exported:
        row.exported, made = _tried(lambda: _by_export(module, inputs))
        if made is not None:
            row.exported = _outcome(made, wanted)
    if training:
        torch._dynamo.reset()
        row.training = _trained(make, 2e-2 if "autocast" in name else 2e-3)
    return row


def _random(make: Callable[[], Made]) -> Made:
    """Make a model with random parameters where they begin as zeros, as heads do: results depend on all of it."""
    module, inputs = make()
    with torch.no_grad():
        for each in module.parameters():
            if not each.any():
                each.normal_(0, 0.02)
    return module, inputs


def _backend() -> Callable[..., Any]:
    from stablexla.interop.torch import backend

    made: Callable[..., Any] = backend
    return made


def _by_export(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
    from stablexla.interop import torch as interop

    with torch.no_grad():
        return interop.from_exported(torch.export.export(module, inputs, strict=False))(*inputs)


def _trained(make: Callable[[], Made], tolerance: float) -> str:
    """Return whether three steps of training have the losses of eager PyTorch."""
    losses = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        module, inputs = make()
        module.train()
        _without_dropout(module)
        step = torch.compile(module, backend=_backend()) if is_compiled else module
        optimizer = torch.optim.SGD(module.parameters(), 1e-3)
        found = []
        for _ in range(3):
            reason, loss = _tried(partial(_step, step, inputs, optimizer))
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
        if isinstance(each, nn.modules.dropout._DropoutNd):
            each.p = 0.0
        for field in ("drop_prob", "p"):  # stochastic depth
            if type(each).__name__ in ("DropPath", "StochasticDepth") and hasattr(each, field):
                setattr(each, field, 0.0)


def _outcome(made: torch.Tensor, wanted: torch.Tensor) -> str:
    apart = float((made - wanted).abs().max() / wanted.abs().max())
    return "right" if apart < (3e-2 if wanted.dtype is torch.bfloat16 else 1e-3) else f"{apart:.0e} apart"


def _tried(function: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "right", function()
    except Exception as error:
        return re.sub(r"\s+", " ", str(error))[:300], None


def _seconds(function: Callable[[], Any], runs: int = 5) -> float:
    """Return the least seconds of some calls."""
    function()
    return min(_once(function) for _ in range(runs))


def _once(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


# ---- the command -----------------------------------------------------------------------------------------------------


def rows(names: Sequence[str], options: Sequence[str]) -> Iterator[Row]:
    """Measure models, each in a process of its own."""
    for name in names:
        command = [sys.executable, "-m", "benchmarks.pytorch", "--one", name, *options]
        with TemporaryDirectory() as empty:  # nothing that was compiled before is found
            caches = {"XDG_CACHE_HOME": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, **caches}
                )
            except subprocess.TimeoutExpired:
                yield Row(name, f"more than {LIMIT} s")
                continue
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"name"')]
        yield Row(**json.loads(lines[-1])) if lines else Row(name, done.stderr.strip().splitlines()[-1][:300])


PAGE = Path(__file__).resolve().parents[1] / "docs" / "pytorch_models.md"
HEAD = """# PyTorch's models

Made by `python -m benchmarks.pytorch --inductor --markdown` with torch {torch} on {processor}, cores used {cores}:
models of torchvision, timm, transformers and diffusers, and some that are written there, in their published sizes with
random weights. `forward` is a call through `torch.compile(model, backend="stablexla")` without gradients, held against
eager PyTorch's results; `training` are three steps of SGD through the same backend, held against the losses of eager
PyTorch; `exported` is `torch.export` and `stablexla.interop.torch.from_exported`. Compile times are those of the first
call with empty caches, capture by Dynamo included; run times are the least of five calls. Inductor is `torch.compile`
without a backend. Ratios are Inductor's and eager PyTorch's time over stablexla's: above 1, stablexla is faster.

"""
HEADS = ("model", "forward", "training", "exported", "compile s", "Inductor", "run ms", "eager", "Inductor ms")


def cells(row: Row) -> list[str]:
    """Return a row of the table."""

    def number(value: float, scale: float = 1.0) -> str:
        return f"{value * scale:.3g}" if value else ""

    return [row.name, row.forward, row.training, row.exported, number(row.compile), number(row.inductor_compile),
            number(row.run, 1e3), number(row.eager, 1e3), number(row.inductor, 1e3)]  # fmt: skip


def page(made: Sequence[Row]) -> str:
    """Return docs/pytorch_models.md."""
    from benchmarks.run import describe_machine

    heads = ["model", "forward", "training", "exported", "compile s", "Inductor s", "ratio", "run ms", "Inductor ms",
             "ratio", "eager ms", "ratio"]  # fmt: skip
    lines, wrong = [f"| {' | '.join(heads)} |", "|---|---|---|---|" + "---:|" * 8], []
    ratios: dict[str, list[float]] = {"compiling": [], "running": [], "running, eager": []}
    for row in made:
        of = ((row.inductor_compile, row.compile), (row.inductor, row.run), (row.eager, row.run))
        found = [theirs / ours if theirs and ours else 0.0 for theirs, ours in of]
        for each, ratio in zip(ratios.values(), found, strict=True):
            each += [ratio] if ratio else []
        outcomes = {"forward": row.forward, "training": row.training, "exported": row.exported}
        wrong += [f"- {row.name}, {what}: {told}" for what, told in outcomes.items() if told not in ("", "right")]
        told = [text if text in ("", "right") else "no" for text in outcomes.values()]
        compile_, inductor_compile, run, eager, inductor = cells(row)[4:]
        first, second, third = (f"{ratio:.2f}" if ratio else "" for ratio in found)
        numbers = [compile_, inductor_compile, first, run, inductor, second, eager, third]
        lines.append(f"| {' | '.join([row.name, *told, *numbers])} |")
    right = sum(row.forward == row.training == row.exported == "right" for row in made)
    means = ", ".join(f"{what} {geometric_mean(each):.2f}" for what, each in ratios.items() if each)
    told_ = [f"{right} of {len(made)} models are right in all three. Geometric means of the ratios: {means}.", ""]
    processor = describe_machine([], None)
    head = HEAD.format(torch=torch.__version__.partition("+")[0], cores=processor["cores used"], **processor)
    return head + "\n".join([*told_, *lines, *(["", "## What is not right", "", *wrong] if wrong else [])]) + "\n"


def merged(file: Path, made: Sequence[Row]) -> list[Row]:
    """Put rows into a file beside those of earlier runs, which keep what was not measured again, and return all."""
    known = {each["name"]: each for each in json.loads(file.read_text())} if file.exists() else {}
    for row in made:
        known[row.name] = known.get(row.name, {}) | {key: value for key, value in asdict(row).items() if value}
    rows_ = [Row(**known[name]) for name in MODELS if name in known]
    file.write_text(json.dumps([asdict(row) for row in rows_], indent=1) + "\n")
    return rows_


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression that a model's name matches")
    parser.add_argument("--inductor", action="store_true", help="measure PyTorch's own compiler as well")
    parser.add_argument("--no-training", action="store_true", help="no three steps of training")
    parser.add_argument("--no-export", action="store_true", help="not by way of torch.export")
    parser.add_argument("--json", type=Path, metavar="FILE", help="put the rows there, beside those of earlier runs")
    parser.add_argument("--markdown", action="store_true", help=f"write {PAGE.name}, of all that FILE has")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if given.one:
        print(json.dumps(asdict(measure(given.one, given.inductor, not given.no_training, not given.no_export))))
        return 0
    passed = [flag for flag, is_set in (("--inductor", given.inductor), ("--no-training", given.no_training),
                                        ("--no-export", given.no_export)) if is_set]  # fmt: skip
    names = [name for name, (_, needs) in MODELS.items() if re.search(given.only, name) and all(map(find_spec, needs))]
    made = []
    for row in rows(names, passed):
        made.append(row)
        print("  ".join(cells(row)), file=sys.stderr, flush=True)
        every = merged(given.json, [row]) if given.json else made
    if given.markdown and made:
        PAGE.write_text(page(every))
    show_table(console(), HEADS, [cells(row) for row in made], HEADS[4:])
    return 0 if all({row.forward, row.training, row.exported} <= {"right", ""} for row in made) else 1


if __name__ == "__main__":
    sys.exit(main())
