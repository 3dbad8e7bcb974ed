"""The programs that benchmarks run: a computation made with the builder, arguments for it, and what numpy would do."""

from benchmarks.programs import (  # noqa: F401
    contraction,
    convolution,
    elementwise,
    fft,
    indexing,
    linear_algebra,
    loops,
    movement,
    network,
    order,
    random,
    reduction,
    rows,
    window,
)
from benchmarks.programs.registry import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
