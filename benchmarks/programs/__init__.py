"""The programs that benchmarks run: kernels made with the builder or by JAX, and whole models when JAX is there."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from benchmarks.programs.registry import PROGRAMS, Program, file_under

FAMILIES = {
    "contractions": ("contraction",),
    "convolutions": ("convolution",),
    "elementwise": ("elementwise", "network"),
    "Fourier transforms": ("fft",),
    "gather and scatter": ("indexing",),
    "linear algebra": ("linear_algebra",),
    "loops": ("loops",),
    "data movement": ("movement",),
    "order": ("order",),
    "random numbers": ("random",),
    "reductions": ("reduction",),
    "rows": ("rows",),
    "windows": ("window",),
}

for family, modules in FAMILIES.items():
    for module in modules:
        import_module(f"benchmarks.programs.{module}")
    file_under(family)
if find_spec("jax") is not None:
    import_module("benchmarks.models")

__all__ = ["PROGRAMS", "Program"]
