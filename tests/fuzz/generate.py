"""From a number to a program, its arguments, and how it is checked; equal numbers give equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tests.fuzz.families  # noqa: F401  # registers the families
from tests.fuzz.check import Plan
from tests.fuzz.program import Arrays, Program
from tests.fuzz.writer import FAMILIES, Writer, arguments_for


@dataclass(frozen=True)
class Drawn:
    """A program with its arguments and how it is checked."""

    seed: int
    program: Program
    arguments: Arrays
    plan: Plan


# Families without which there is no program.
FOUNDATION = ("elementwise", "conversion", "shape", "reduction", "contraction", "control")


def draw(seed: int, families: Sequence[str] = (), statements: int = 0, target: str = "") -> Drawn:
    """The program of that number; of even ones all numbers are whole.

    Args:
        families: those that it is made of; all by default.
        statements: how many are written at the top; by default from 2 to 16, by the number. Constants come on top.
        target: a GPU that is simulated, `gpu:sm_80`, in place of the CPU.
    """
    whole = seed % 2 == 0
    count = statements or 2 + seed * 7 % 15
    program = Writer(seed, count, list(families) or list(FAMILIES), whole).write()
    # The second oracle and the second way take turns: compiling takes most of the time.
    turn = seed // 2 % 3
    second = ((), ("general",), ("kernels",))[turn]
    ways = (target,) if target else ("emitters", *second)
    oracles = ("interpreter", "xla") if turn == 0 and not target else ("interpreter",)
    return Drawn(seed, program, arguments_for(program, seed, whole), Plan(whole, ways, oracles))
