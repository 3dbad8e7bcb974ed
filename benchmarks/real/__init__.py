"""Whole programs as public libraries write them; those whose library is not installed are left out of a run."""

from __future__ import annotations

from importlib import import_module

from benchmarks.programs.registry import file_under

FAMILIES = {
    "networks of flax, equinox and haiku": ("flax_networks", "equinox_networks", "haiku_networks"),
    "samplers and simulations": ("probability", "physics"),
    "transformers' models": ("torch_models",),
}

for family, modules in FAMILIES.items():
    for module in modules:
        import_module(f"benchmarks.real.{module}")
    file_under(family, "real")
