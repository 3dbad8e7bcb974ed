"""The programs that benchmarks run: kernels made with the builder or by JAX; with JAX, models and real programs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from benchmarks.programs.registry import PROGRAMS, Program, file_under

# By family: modules of this folder, and of `jax_kernels`, whose programs JAX lowers.
FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "contractions": (("contraction", "network"), ()),
    "attention": ((), ("attention",)),
    "convolutions": (("convolution",), ("convolution",)),
    "quantised types": (("quantized",), ("quantized",)),
    "elementwise": (("elementwise",), ("elementwise",)),
    "rows": (("rows",), ("rows",)),
    "reductions": (("reduction",), ("reduction",)),
    "data movement": (("movement",), ("movement",)),
    "windows and scans": (("window",), ("window",)),
    "gather and scatter": (("indexing",), ("indexing",)),
    "order": (("order",), ("order",)),
    "random numbers": (("random",), ("random",)),
    "Fourier transforms": (("fft",), ()),
    "complex numbers": (("complex_numbers",), ("complex_numbers",)),
    "linear algebra": (("linear_algebra",), ("linear_algebra",)),
    "loops": (("loops",), ("loops",)),
}
WITH_JAX = find_spec("jax") is not None

for family, (built, traced) in FAMILIES.items():
    for module in built:
        import_module(f"benchmarks.programs.{module}")
    for module in traced if WITH_JAX else ():
        import_module(f"benchmarks.jax_kernels.{module}")
    file_under(family)
import_module("benchmarks.programs.small")
if WITH_JAX:
    import_module("benchmarks.models")
    import_module("benchmarks.real")

__all__ = ["PROGRAMS", "Program"]
