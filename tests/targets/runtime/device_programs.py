"""Programs over several devices without a compiler: steps that a small C function does, and what these do in numpy."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction

ALL = -1
COMBINES = {None: 0, "add_f32": 1, "add_f64": 2, "add_u8": 3, "ordered": 4}
SYMBOLS = {
    "collective": "stablexla_collective",
    "call_host": "stablexla_call_host",
    "device_id": "stablexla_device_id",
    "random_key": "stablexla_next_random_key",
    "parallel_for": "stablexla_parallel_for",
}


@functools.cache
def _library() -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "device_program.so"
        source = Path(__file__).with_name("device_program.c")
        command = [compiler, "-std=c11", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", output, source]
        subprocess.run(command, check=True, timeout=60)
        library = ctypes.CDLL(str(output))
    for name, symbol in SYMBOLS.items():
        address = runtime.find_symbol(symbol)
        assert address, symbol
        ctypes.c_void_p.in_dll(library, name).value = address
    return library


@dataclass
class Step:
    """What the devices of a mask do; buffers are named by their place among parameters, constant and results."""

    kind: int
    number: int = 0
    outputs: Sequence[int] = ()
    inputs: Sequence[int] = ()
    combine: str | None = None
    devices: int = ALL
    repeats: int = 1
    more: int = 0

    def numbers(self) -> list[int]:
        sides = [[len(side), *side, *[0] * (3 - len(side))] for side in (self.outputs, self.inputs)]
        head = [self.devices, self.kind, self.number, COMBINES[self.combine], self.repeats, self.more]
        return [*head, *sides[0], *sides[1]]


collective = functools.partial(Step, 0)
host = functools.partial(Step, 1)
device = functools.partial(Step, 2)
key = functools.partial(Step, 3)
parallel = functools.partial(Step, 4)


def mask(*devices: int) -> int:
    return sum(1 << d for d in devices)


def devices_program(
    parameters: Sequence[ArraySpec],
    results: Sequence[ArraySpec],
    steps: Sequence[Step],
    collectives: Sequence[Mapping[str, Any]] = (),
    num_devices: int = 2,
    name: str = "program",
    **options: Any,
) -> CompiledFunction:
    """A program of these steps. Places: the parameters, the script, the results."""
    script = np.array([len(steps), *(n for step in steps for n in step.numbers())], np.int64)
    library = _library()
    address = ctypes.cast(getattr(library, f"run{len(parameters)}"), ctypes.c_void_p).value
    assert address
    options = {"keep_alive": library, **options}
    return CompiledFunction(
        name,
        address,
        parameters,
        results,
        constants=[script],
        collectives=collectives,
        num_devices=num_devices,
        **options,
    )


def config(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str] | None = None,
    groups: Sequence[Sequence[int]] = (),
    *,
    width: int = 4,
    **more: Any,
) -> dict[str, Any]:
    """As the compiler describes it."""
    count = max(len(inputs), len(outputs or ()))
    return {
        "op": op,
        "place": f"\n  from model.py:{len(op)} in step",
        "inputs": tuple(inputs),
        "outputs": tuple(inputs if outputs is None else outputs),
        "groups": tuple(map(tuple, groups)),
        "pairs": (),
        "channel": 0,
        "copies": (),
        "element_bytes": (width,) * count,
        **more,
    }


def moved(part: Sequence[int], source: Sequence[int], target: Sequence[int], steps: tuple[int, int], width: int) -> Any:
    """The copy of a part between arrays of two shapes; the steps are counted in elements."""

    def strides(shape: Sequence[int]) -> list[int]:
        return [width * int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]

    return (*part, width), (*strides(source), 1), (*strides(target), 1), width * steps[0], width * steps[1]


def run(function: CompiledFunction, *arguments: np.ndarray, **options: Any) -> list[list[np.ndarray]]:
    """Each argument has a row for every device."""
    rows = [[a[d] for a in arguments] for d in range(function.num_devices)]
    return function.execute_replicated(rows, **options)


def values(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 200, shape).astype(dtype)


def fold(rows: np.ndarray, combine: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """The rows' left fold."""
    return functools.reduce(combine, list(rows))
