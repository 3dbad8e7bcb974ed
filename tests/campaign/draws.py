"""From a number to a program, its arguments and how it is examined; equal numbers give equal ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.campaign.forms import names_for
from tests.campaign.matrix import cell
from tests.campaign.mutate import mutated
from tests.campaign.pool import Unfit, any_program
from tests.campaign.stitch import stitched
from tests.fuzz.check import Plan
from tests.fuzz.program import Arrays, Program
from tests.fuzz.sized import sized
from tests.fuzz.writer import arguments_for


@dataclass(frozen=True)
class Drawn:
    """A program with its arguments and how it is examined.

    Attributes:
        made: how it was made: `stitched`, `mutated`, `cell`, or two of them, or `sized`.
    """

    seed: int
    made: str
    program: Program
    arguments: Arrays
    plan: Plan


def _mutated(seed: int) -> Program:
    rng = random.Random(seed)
    return mutated(any_program(rng), seed, times=rng.randint(1, 3))


def _stitched_and_mutated(seed: int) -> Program:
    return mutated(stitched(seed), seed)


SIZED = "sized"
MAKERS: dict[str, tuple[Callable[[int], Program], int]] = {
    "stitched": (stitched, 8),
    "mutated": (_mutated, 5),
    "stitched, mutated": (_stitched_and_mutated, 2),
    "cell": (cell, 5),
    SIZED: (sized, 10),
}
"""Ways to make a program from a number, and how often each is taken."""
TRIES = 40


def draw(seed: int, target: str = "", makers: Sequence[str] = ()) -> Drawn:
    """The program of that number.

    Args:
        target: a GPU that is simulated, `gpu:sm_80`, in place of the CPU.
        makers: ways that it may be made in; all by default.
    """
    rng = random.Random(seed)
    # everyday sizes take a simulated GPU minutes
    known = [name for name in makers or MAKERS if not (target and name == SIZED)]
    made = rng.choices(known, [MAKERS[name][1] for name in known])[0]
    program, whole = _first(MAKERS[made][0], seed), made == SIZED
    plan = _plan_of_sized(seed) if whole else _plan(seed, target)
    return Drawn(seed, made, program, arguments_for(program, seed, whole), plan)


def _first(make: Callable[[int], Program], seed: int) -> Program:
    """The first of a row of numbers that gives a program."""
    for number in range(seed * TRIES, seed * TRIES + TRIES):
        try:
            program = make(number)
        except Exception:  # an operation that does not take that, statements that do not know a type
            continue
        if program.statements and len(program.statements) <= MOST_STATEMENTS:
            return program
    raise Unfit(f"no program under number {seed}")


MOST_STATEMENTS = 120


def _plan_of_sized(seed: int) -> Plan:
    """Whole, against XLA:CPU; each kernel by its emitter and by the general path, a third between guard pages."""
    forms = ["kernels", ("guarded", "eager", "drawn")[seed % 3], *names_for(seed, 1)]
    ways = ["emitters", *(["general"] if seed % 4 == 0 else []), *(f"form {name}" for name in dict.fromkeys(forms))]
    return Plan(True, ways, ("xla",))


def _plan(seed: int, target: str) -> Plan:
    """The second oracle and the second way take turns, as compiling takes most of the time."""
    if target:
        return Plan(False, (target,), ("interpreter",))
    ways = ["emitters", *(["general"] if seed % 6 == 0 else []), *(f"form {name}" for name in names_for(seed, 1))]
    ways += ["form again"] if seed % 20 == 0 else []
    ways += ["form eager"] if seed % 3 == 0 else ["form drawn"] if seed % 3 == 1 else []
    return Plan(False, ways, ("interpreter", "xla") if seed % 4 == 1 else ("interpreter",))
