"""Starting test programs in many processes, within a time limit and over this machine alone."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stablexla as sx
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
TRANSPORTS = [pytest.param("mpi", marks=needs_mpi), "tcp"]
WORLD = "STABLEXLA_TEST_WORLD"

# Other tests run beside these, so every process gets one thread; the network stays out of it.
_SETTINGS = {"STABLEXLA_NUM_THREADS": "1", "FI_PROVIDER": "tcp", "HYDRA_IFACE": "lo"}


def start(processes: int, module: str, *arguments: str, transport: str = "mpi") -> subprocess.CompletedProcess[str]:
    """Runs a module of the tests in so many processes; all of them are ended after LIMIT seconds."""
    program = [sys.executable, "-m", module, *arguments]
    if transport == "tcp":
        return _start_alone(processes, program)
    limited = ["timeout", "--kill-after=5", str(LIMIT), *launcher(), "-n", str(processes), *program]
    environment = {**os.environ, **_SETTINGS}
    return subprocess.run(limited, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def _start_alone(processes: int, program: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a program in processes that only know where the first one listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    limited = ["timeout", "--kill-after=5", str(LIMIT), *program]
    started = []
    for rank in range(processes):
        environment = {**os.environ, **_SETTINGS, WORLD: f"127.0.0.1:{port} {processes} {rank}"}
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(limited, cwd=ROOT, env=environment, **pipes))
    said = [each.communicate() for each in started]
    worst = max((each.returncode for each in started), key=abs)
    return subprocess.CompletedProcess(program, worst, *("".join(texts) for texts in zip(*said, strict=True)))


def join() -> sx.distributed.World:
    """As one of the processes that `start` started."""
    world = os.environ.get(WORLD)
    if world is None:
        return sx.distributed.initialize()
    coordinator, size, rank = world.split()
    return sx.distributed.initialize(coordinator, int(size), int(rank), secret="known to all", time_limit=60)
