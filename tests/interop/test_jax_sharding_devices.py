"""Programs of JAX on the eight devices of a mesh, run by stablexla's jit in a process that has so many, beside JAX."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.interop.sharded_programs import ENVIRONMENT, PROGRAMS


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str | None]:
    """What became of each program: what went wrong, or None."""
    command = [sys.executable, "-m", "tests.interop.sharded_programs"]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    return {**dict.fromkeys(PROGRAMS, f"it did not run: {done.stderr[-2000:]}"), **dict(lines)}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_jax(name: str, outcomes: dict[str, str | None]) -> None:
    assert outcomes[name] is None, outcomes[name]
