"""Starting test programs in many processes, within a time limit and over this machine alone."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stablexla.dialects.errors import StablexlaError
from stablexla.distributed import launcher

ROOT = Path(__file__).parents[2]
LIMIT = 100


def _reason() -> str:
    """Why programs cannot run over MPI here, or nothing."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed"
    try:
        launcher()
    except StablexlaError as error:
        return str(error)
    return ""


needs_mpi = pytest.mark.skipif(bool(_reason()), reason=_reason() or "MPI is there")

# Other tests run beside these, so every process gets one thread; the network stays out of it.
_SETTINGS = {"STABLEXLA_NUM_THREADS": "1", "FI_PROVIDER": "tcp", "HYDRA_IFACE": "lo"}


def start(processes: int, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of the tests in so many processes; all of them are ended after LIMIT seconds."""
    program = [sys.executable, "-m", module, *arguments]
    limited = ["timeout", "--kill-after=5", str(LIMIT), *launcher(), "-n", str(processes), *program]
    environment = {**os.environ, **_SETTINGS}
    return subprocess.run(limited, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
