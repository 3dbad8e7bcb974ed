"""Whole networks as JAX users write them: weights are arguments, drawn from a fixed seed."""

from __future__ import annotations

from importlib import import_module

from benchmarks.programs.registry import file_under

FAMILIES = {
    "transformers": ("bert", "gpt2"),
    "convolutional networks": ("resnet", "unet"),
    "recurrent networks and loops": ("recurrent",),
    "dense networks": ("perceptron",),
}

for family, modules in FAMILIES.items():
    for module in modules:
        import_module(f"benchmarks.models.{module}")
    file_under(family, "models")
import_module("benchmarks.models.layers")
