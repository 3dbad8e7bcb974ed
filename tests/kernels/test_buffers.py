"""Buffer assignment: no array is overwritten while it is needed, and copies are made only where they must.

The oracle is a run of the program on marks in memory (`shadow.py`), which shares nothing with the planning of life
times.
"""

from __future__ import annotations

import mlir.ir as ir
import pytest

from stablexla.targets.cpu.buffers import BufferAssignment
from tests.fuzz.program_text import ProgramText
from tests.kernels.shadow import Shadow
from tests.kernels.stages import emitted


def assigned(text: str, *, general_only: bool = False) -> BufferAssignment:
    """The buffers of a StableHLO program. The module must live as long as the assignment: it keeps it."""
    module = emitted(text, general_only=general_only)
    with module.context, ir.Location.unknown():
        made = BufferAssignment(module)
    made.module = module  # type: ignore[attr-defined]
    return made


def all_copies(assignment: BufferAssignment) -> int:
    """How many arrays are moved in all, not counting those that stay where they are."""
    return sum(
        copy.source.find() is not copy.target.find() for copies in assignment.copies.values() for copy in copies
    )


@pytest.mark.parametrize("path", ["emitters", "general"])
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_every_read_finds_what_was_written(first: int, path: str) -> None:
    for seed in range(first, first + 10):
        program = ProgramText(seed, size=18).write()
        assignment = assigned(program.text, general_only=path == "general")
        for run in range(6):
            try:
                Shadow(assignment, run).run()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, run {run}: {error}\n{program.text}") from error
