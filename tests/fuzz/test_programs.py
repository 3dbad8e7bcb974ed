"""Random programs against the reference interpreter, by the emitters and by the general path: exact numbers."""

from __future__ import annotations

import pytest

from tests.fuzz.program_text import ProgramText
from tests.programs import check, general_only

BATCH = 10


@pytest.mark.parametrize("path", ["emitters", "general"])
@pytest.mark.parametrize("first", range(0, 120, BATCH))
def test_random_programs(first: int, path: str) -> None:
    options = general_only() if path == "general" else None
    for seed in range(first, first + BATCH):
        program = ProgramText(seed).write()
        try:
            check(program.text, program.arguments(seed), against=["interpreter"], options=options)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{program.text}") from error
