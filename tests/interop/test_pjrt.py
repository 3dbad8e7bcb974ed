"""The PJRT plugin: programs of JAX on the platform stablexla, in a process of their own. Oracle: XLA's CPU, numpy."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from stablexla.pjrt.compiling import NUMBERS, Options

_jax = pytest.importorskip("jaxlib._jax")
pytest.importorskip("jax")

PROGRAMS = Path(__file__).with_name("pjrt_programs.py")
ROOT = Path(__file__).parents[2]


def checks() -> list[str]:
    """The names of the checks, read from the file: importing it would set this process's platform."""
    functions = (node for node in ast.parse(PROGRAMS.read_text()).body if isinstance(node, ast.FunctionDef))
    return [f.name for f in functions if any(getattr(d, "id", "") == "check" for d in f.decorator_list)]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**variables, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@cache
def outcomes() -> dict[str, str]:
    done = run(str(PROGRAMS))
    assert done.returncode == 0, done.stderr[-4000:]
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    return {line["name"]: line["wrong"] for line in lines}


@pytest.mark.parametrize("name", checks())
def test_programs(name: str) -> None:
    assert outcomes()[name] == ""


def code(text: str, platforms: str = "stablexla", **environment: str) -> subprocess.CompletedProcess[str]:
    return run("-c", f"import jax, jax.numpy as jnp\n{text}", JAX_PLATFORMS=platforms, **environment)


def test_nothing_is_registered_unless_asked_for() -> None:
    done = run(
        "-c", "import jax; print(jax.devices()[0].client.platform_version); import sys; print('mlir' in sys.modules)"
    )
    assert "stablexla" not in done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_a_process_ends_with_arrays_and_programs_alive() -> None:
    done = code("f = jax.jit(lambda x: x + 1)\ny = f(jnp.ones(3))\nprint(y.sum())")
    assert (done.returncode, done.stdout, done.stderr) == (0, "6.0\n", "")


def test_more_devices_than_there_are() -> None:
    done = code("jax.pmap(lambda x: x)(jnp.ones((2, 1)))")
    assert done.returncode == 1
    assert "2" in done.stderr


def test_a_number_of_devices_that_is_none() -> None:
    done = code("jax.devices()", STABLEXLA_NUM_DEVICES="many")
    assert done.returncode == 1
    assert "STABLEXLA_NUM_DEVICES" in done.stderr


def test_compile_options() -> None:
    assert Options.parse(b"") == Options(1, 1, (0,))
    options = _jax.CompileOptions()
    options.num_replicas, options.num_partitions = 2, 3
    assert Options.parse(options.SerializeAsString()) == Options(2, 3, (0, 1, 2, 3, 4, 5))
    options.device_assignment = _jax.DeviceAssignment.create(np.array([[5, 4, 3], [2, 1, 0]]))
    assert Options.parse(options.SerializeAsString()).devices == (5, 4, 3, 2, 1, 0)


def test_numbers_of_element_types() -> None:
    assert [NUMBERS[name] for name in ("bool", "int64", "float32", "complex128", "token")] == [1, 5, 11, 15, 23]
    assert NUMBERS["float6_e3m2fn"] == 33
