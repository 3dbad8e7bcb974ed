"""Programs for the native runtime's tests: entries written in Python through ctypes, or jitted from MLIR text."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction

ENTRY = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p))
LOWER = (
    "builtin.module(convert-scf-to-cf,convert-vector-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,"
    "convert-cf-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},reconcile-unrealized-casts)"
)


def view(address: int, spec: ArraySpec) -> np.ndarray:
    """The memory at an address as an array; every address that a program is given may be read for `nbytes`."""
    assert address
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * spec.nbytes).from_address(address))
    return raw.view(spec.dtype).reshape(spec.shape) if spec.nbytes else np.empty(spec.shape, spec.dtype)


def program(
    parameters: Sequence[ArraySpec],
    results: Sequence[ArraySpec],
    body: Callable[..., object],
    *,
    constants: Sequence[np.ndarray] = (),
    arena_bytes: int = 0,
    name: str = "program",
    **options: Any,
) -> CompiledFunction:
    """A program whose machine code calls `body(*arrays)`: parameters, constants, results, and the arena as bytes."""
    specs = [*parameters, *(ArraySpec(c.dtype, c.shape) for c in constants), *results]
    specs.append(ArraySpec("uint8", (arena_bytes,)))

    @ENTRY
    def entry(packed: Any) -> None:
        addresses = [ctypes.c_void_p.from_address(packed[i]).value for i in range(len(specs))]
        body(*(view(address, spec) for address, spec in zip(addresses, specs, strict=True)))

    address = ctypes.cast(entry, ctypes.c_void_p).value
    assert address
    return CompiledFunction(
        name, address, parameters, results, arena_bytes, list(constants), keep_alive=entry, **options
    )


def echo(spec: ArraySpec, name: str = "echo") -> CompiledFunction:
    """A program of one parameter that returns it."""

    def copy(given: np.ndarray, result: np.ndarray, _arena: np.ndarray) -> None:
        result[...] = given

    return program([spec], [ArraySpec(spec.dtype, spec.shape)], copy, name=name)


def jit(text: str, parameters: Sequence[ArraySpec], results: Sequence[ArraySpec], **options: Any) -> CompiledFunction:
    """Machine code of the function @main in upstream MLIR text."""
    from mlir.execution_engine import ExecutionEngine
    from mlir.ir import Context, Location, Module
    from mlir.passmanager import PassManager

    with Context(), Location.unknown():
        module = Module.parse(text)
        PassManager.parse(LOWER).run(module.operation)
        engine = ExecutionEngine(module, opt_level=2, shared_libs=[runtime.library_path()])
        return CompiledFunction("main", engine.raw_lookup("main"), parameters, results, keep_alive=engine, **options)


@pytest.fixture
def make_program() -> Callable[..., CompiledFunction]:
    return program


@pytest.fixture
def make_echo() -> Callable[..., CompiledFunction]:
    return echo


@pytest.fixture
def make_jit() -> Callable[..., CompiledFunction]:
    return jit


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of threads for one test."""
    before = runtime.get_num_threads()
    yield runtime.set_num_threads
    runtime.set_num_threads(before)


@pytest.fixture
def nothing_leaks() -> Iterator[None]:
    """All memory that a test takes from the pool goes back to it."""
    before = runtime.pool_stats()
    yield
    if runtime.pool_stats()["in_use_blocks"] > before["in_use_blocks"]:
        gc.collect()
    after = runtime.pool_stats()
    assert after["in_use_blocks"] <= before["in_use_blocks"]
    assert after["in_use_bytes"] <= before["in_use_bytes"]
