"""Networks of `benchmarks.pytorch` in bytes: quantized by PyTorch's tool, and by ONNX Runtime's for others.

Both quantize activations by tensor, to unsigned bytes, and weights by output channel, to signed ones, by two batches of
random numbers. ONNX Runtime and OpenVINO are given the graph that ONNX Runtime's tool makes, of QuantizeLinear and
DequantizeLinear.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

SUFFIX = ", int8"
"""Of the names of quantized models."""
BATCHES = 2
FARTHEST = 0.3
"""Distance from results in f32, of the largest, that other tools' quantization may have: it is of more products."""


def quantized(module: nn.Module, inputs: tuple[Any, ...]) -> nn.Module:
    """Quantize a module by `torchao.quantization.pt2e`, for processors of x86."""
    steps = import_module("torchao.quantization.pt2e.quantize_pt2e")
    x86 = import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = steps.prepare_pt2e(torch.export.export(module, inputs, strict=True).module(), quantizer)
        for given in _samples(inputs):
            prepared(*given)
        made: nn.Module = steps.convert_pt2e(prepared)
    return made


def _samples(inputs: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return what ranges are observed on: the inputs themselves are among it."""
    return [inputs, *([x.flip(0).roll(7, -1) for x in inputs] for _ in range(BATCHES - 1))]


def onnx_file(module: nn.Module, inputs: tuple[Any, ...], folder: Path) -> Path:
    """Quantize a module by ONNX Runtime's tool; return the file."""
    tool = import_module("onnxruntime.quantization")
    prepare = import_module("onnxruntime.quantization.shape_inference").quant_pre_process
    names = [f"x{number}" for number in range(len(inputs))]
    plain, known, made = (folder / f"{name}.onnx" for name in ("plain", "known", "quantized"))
    torch.onnx.export(module, inputs, plain, dynamo=False, opset_version=17, input_names=names)
    prepare(plain, known, skip_symbolic_shape=True)
    batches = iter([{n: x.numpy() for n, x in zip(names, given, strict=True)} for given in _samples(inputs)])

    class Reader(tool.CalibrationDataReader):  # type: ignore[misc, name-defined]  # its module is imported by name
        def get_next(self) -> Any:
            return next(batches, None)

    tool.quantize_static(
        known, made, Reader(), quant_format=tool.QuantFormat.QDQ, per_channel=True,
        activation_type=tool.QuantType.QUInt8, weight_type=tool.QuantType.QInt8,
    )  # fmt: skip
    return made


def adapt(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Let batch normalizations take the ranges of random weights' activations, as training would."""
    norms = [each for each in module.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    for each in norms:
        each.momentum = None  # the mean of what it has seen
        each.reset_running_stats()
        each.train()
    for _ in range(2 if norms else 0):
        module(*(torch.cat([x, x.flip(-1)]) for x in inputs))
    module.eval()
