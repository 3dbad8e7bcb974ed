"""Every operation with every element type, at rank 0, without elements, with one along a dimension, with odd ones.

Operations are those of the registry, by the programs of their docstrings' examples: a new one takes part by itself.
"""

from __future__ import annotations

from tests.campaign.mutate import ELEMENTS, resized, retyped
from tests.campaign.pool import Unfit, named, names
from tests.campaign.stitch import scalars
from tests.fuzz.program import Program

SIZES = ("as it is", "rank 0", 0, 1, 7)
"""What becomes of the arrays: the rank, or all extents of the example."""
STEP = 7919  # cells of equal operations lie apart


def cells() -> int:
    """How many there are."""
    return len(names("operation ")) * len(ELEMENTS) * len(SIZES)


def cell(number: int) -> Program:
    """The program of a cell, which is found under every number that is the same modulo their count.

    Raises:
        Unfit, MLIRError: the operation does not take that.
    """
    operations = names("operation ")
    number = number * STEP % cells()
    number, size = divmod(number, len(SIZES))
    number, element = divmod(number, len(ELEMENTS))
    program = named(operations[number])
    values = [program.values[name] for name in program.returns] + list(program.parameters)
    main = next((v.element for v in values if v.element != ELEMENTS[element]), "")
    if main:
        program = retyped(program, main, ELEMENTS[element])
    return _of_size(program, SIZES[size])


def _of_size(program: Program, size: str | int) -> Program:
    if size == "as it is":
        return program
    if isinstance(size, str):
        return scalars(program)
    changed = False
    for extent in sorted({d for v in program.values.values() for d in v.shape}):
        try:
            program = resized(program, extent, size)
            changed = True
        except Exception:  # this one has to stay
            continue
    if not changed:
        raise Unfit("no extent can be another")
    return program
