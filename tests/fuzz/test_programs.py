"""Random programs against the reference interpreter, by the emitters and by the general path: exact numbers."""

from __future__ import annotations

import pytest

import stablexla as sx
from stablexla.targets.cpu.pipeline import cpu_pipeline
from tests.fuzz.program_text import ProgramText
from tests.programs import check

BATCH = 10


def _general_only() -> sx.CompileOptions:
    """Every kernel through linalg and upstream's loops."""
    pipeline = cpu_pipeline()
    passes = next(step.passes for step in pipeline if step.name == "buffers")
    name = "stablexla-emit-kernels"
    head, _, tail = passes.partition(name)
    rest = tail[tail.index("}") :] if tail.startswith("{") else "}" + tail
    return sx.CompileOptions(pipeline=pipeline.with_step("buffers", f"{head}{name}{{general-only=true{rest}"))


@pytest.mark.parametrize("path", ["emitters", "general"])
@pytest.mark.parametrize("first", range(0, 120, BATCH))
def test_random_programs(first: int, path: str) -> None:
    options = _general_only() if path == "general" else None
    for seed in range(first, first + BATCH):
        program = ProgramText(seed).write()
        try:
            check(program.text, program.arguments(seed), against=["interpreter"], options=options)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{program.text}") from error
