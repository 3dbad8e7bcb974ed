"""Whole modules that others are made of: random programs, texts of the suite, examples of operations, HLO's opcodes.

A module takes part as a `Program`: calls inlined, composites decomposed, one function on arrays of fixed shapes.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from math import prod

from stablexla.inspection.program import UNREPEATABLE, FlatProgram
from stablexla.interop.loading import load
from tests.fuzz.generate import draw
from tests.fuzz.program import Program

MOST_STATEMENTS, MOST_ELEMENTS, MOST_CHARACTERS = 60, 4096, 20_000
LEFT_OUT = re.compile(
    "|".join(rf"{re.escape(name)}\b" for name in UNREPEATABLE)
    + r"|stablehlo\.(all_|collective_|reduce_scatter|outfeed|send)"
)
"""What a program by itself, on one device, cannot be compared with."""


class Unfit(Exception):
    """A module that takes no part, and why."""


def parsed(source: str) -> Program:
    """The program of a module's text, in MLIR or in HLO.

    Raises:
        Unfit: it is too large, depends on devices or functions of the host, or has shapes that are not fixed.
    """
    try:
        flat = FlatProgram.of(load(source, entry="main"))
        text = flat.module.operation.get_asm(enable_debug_info=False, large_elements_limit=None)
        if len(text) > MOST_CHARACTERS or LEFT_OUT.search(text):
            raise Unfit("large, or not to be repeated")
        program = Program.parse(text)
        if len(program.statements) > MOST_STATEMENTS:
            raise Unfit("large")
        if any(prod(v.shape) > MOST_ELEMENTS or not v.element_type for v in program.values.values()):
            raise Unfit("large arrays")
        if sum("interior = [1]" in s.text for s in program.statements) > 2:
            raise Unfit("an associative scan, which is computed in another order")
        return Program.parse(program.text)  # without what the signature had beside types
    except Unfit:
        raise
    except Exception as error:  # an assertion about its form, a type that is no array's, what MLIR says
        raise Unfit(f"{type(error).__name__}: {error}") from error


@functools.cache
def _sources() -> dict[str, Callable[[], str]]:
    """Every module by its name: what gives its text."""
    from tests.interop.hlo_opcodes import SAMPLES
    from tests.stage_texts import _modules
    from tests.targets.gpu.operations import OPERATIONS, program_of

    found: dict[str, Callable[[], str]] = {}
    for name in OPERATIONS:
        found[f"operation {name}"] = lambda name=name: str(program_of(name))  # type: ignore[misc]
    for name, text in _modules():
        found[f"filecheck {name}"] = lambda text=text: text  # type: ignore[misc]
    for name, text in SAMPLES.items():
        found[f"hlo {name}"] = lambda text=text: text if "HloModule" in text else f"HloModule m\n\n{text}"  # type: ignore[misc]
    return found


def names(kind: str = "") -> list[str]:
    """The names of all modules, or of those of a kind: `operation`, `filecheck`, `hlo`."""
    return [name for name in _sources() if name.startswith(kind)]


@functools.cache
def _program(name: str) -> Program | Unfit:
    try:
        return parsed(_sources()[name]())
    except Unfit as unfit:
        return unfit
    except Exception as error:  # an example that builds nothing
        return Unfit(f"{type(error).__name__}: {error}")


def named(name: str) -> Program:
    """The program of that name.

    Raises:
        Unfit: it takes no part.
    """
    found = _program(name)
    if isinstance(found, Unfit):
        raise found
    return found


def any_program(rng: random.Random) -> Program:
    """One of the pool, or a random one of a few statements; half and half."""
    for _ in range(20):
        if rng.random() < 0.5:
            return draw(rng.randrange(10**6), statements=rng.randint(1, 5)).program
        try:
            return named(rng.choice(names()))
        except Unfit:
            continue
    raise Unfit("nothing fits")
