"""The programs that benchmarks run: a computation made with the builder, arguments for it, and what numpy would do."""

from benchmarks.programs import (  # noqa: F401
    contraction,
    elementwise,
    indexing,
    loops,
    movement,
    network,
    reduction,
    rows,
)
from benchmarks.programs.registry import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
