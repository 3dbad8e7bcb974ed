"""The programs that benchmarks run: a computation made with the builder, arguments for it, and what numpy would do."""

from benchmarks.programs import contraction, elementwise, loops, movement, network, reduction, rows  # noqa: F401
from benchmarks.programs.registry import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
