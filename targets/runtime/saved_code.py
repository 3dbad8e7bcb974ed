"""Saved machine code: describe a compiled function, and restore it in another process without any compiler."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.dialects import custom_calls
from stablexla.dialects.custom_calls import C_FUNCTION, CustomCallTarget
from stablexla.dialects.errors import CompileError, LoadError
from stablexla.dialects.system import shared_library
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import mpi_symbols, processor
from stablexla.targets.runtime._runtime import (
    ArraySpec,
    CompiledFunction,
    GpuFunction,
    ObjectCode,
    find_symbol,
    set_num_threads,
    undefined_symbols,
)
from stablexla.targets.runtime.container import ALIGNMENT, Part
from stablexla.targets.runtime.host import Host

_IN_PLACE_OF = {"malloc": "stablexla_malloc", "free": "stablexla_free"}
_ENTRY = "_mlir_main"
"""The function that takes the addresses of all arguments; see `CompiledFunction`."""


class LoadedCode:
    """Loaded object files, each of which may call functions of those before it, linked to their external symbols.

    Attributes:
        features: of the processor, that the code may use.

    Raises:
        LoadError: something that it calls is not there.
        RuntimeError: no such files.
    """

    def __init__(self, files: Sequence[bytes], features: Iterable[str]) -> None:
        self.features = frozenset(features)
        self._files = list(files)
        self._code: list[ObjectCode] = []
        self._called: dict[str, CustomCallTarget] = {}
        for file in files:
            self._code.append(ObjectCode(file, self._symbols(undefined_symbols(file))))
        self.entry = self._code[-1].address(_ENTRY)

    def _symbols(self, names: Sequence[str]) -> dict[str, int]:
        """Resolve symbols: those of the files before, the program's own, and the process's."""
        own = {name: code.address(name) for name in names for code in self._code if code.address(name)}
        others = [name for name in names if name not in own]
        called = _custom_calls(others)
        self._called |= called
        return {**own, **_addresses(others), **{name: target.address for name, target in called.items()}}

    def address(self, name: str) -> int:
        """Return where a function is; of equal names it is the last one, as for those that call it.

        Raises:
            LoadError: there is none.
        """
        found = [place for code in self._code if (place := code.address(name))]
        if not found:
            raise LoadError(f"the code has no function {name}")
        return found[-1]

    @property
    def nbytes(self) -> int:
        """Memory of the machine code."""
        return sum(code.size for code in self._code)

    def object_files(self) -> list[bytes]:
        """Return the object files."""
        return self._files


def describe(function: CompiledFunction | GpuFunction) -> tuple[dict[str, Any], dict[str, Part]]:
    """Return what `restore` needs besides the interface: plain values, and sections of bytes."""
    description, sections = _described(function)
    if isinstance(function, CompiledFunction):
        return description, sections
    description["gpu"], more = _gpu_code().describe(function)
    return description, {**sections, **more}


def _gpu_code() -> Any:
    """What writes and reads kernels for GPUs; found by its name, as the runtime stands below all targets."""
    return import_module("stablexla.targets.gpu.launch.gpu_code")


def _described(function: CompiledFunction | GpuFunction) -> tuple[dict[str, Any], dict[str, Part]]:
    """Return what all functions need."""
    host: Host | None = function.host
    constants = function.constants
    description = {
        "machine": processor.machine(),
        "features": sorted(function.keep_alive.features),
        "arena_bytes": function.arena_bytes,
        "aliases": sorted(function.aliases.items()),
        "flush_denormals": function.flush_denormals,
        "places": sorted(function.places.items()),
        "constants": [constant.nbytes for constant in constants],
        "host_calls": None if host is None else host.described(),
        "num_devices": function.num_devices,
        "collectives": list(function.collectives),
    }
    padded = [part for c in constants for part in (c.data, bytes(-c.nbytes % ALIGNMENT))]
    files = function.keep_alive.object_files()
    description["code"] = [len(file) for file in files]
    return description, {"code": files, "constants": padded}


def restore(
    name: str,
    parameters: Sequence[ArraySpec],
    results: Sequence[ArraySpec],
    description: Mapping[str, Any],
    sections: Mapping[str, memoryview],
) -> CompiledFunction | GpuFunction:
    """Restore the function.

    Raises:
        LoadError: this machine is another one, or something that the code calls is not there.
    """
    if knobs.num_threads is not None:
        set_num_threads(knobs.num_threads)
    check_machine(description)
    calls = description["host_calls"]
    _check_functions(calls or ())
    mpi_symbols.check_world(description["collectives"], description["num_devices"])
    code = LoadedCode(_cut(sections["code"], description["code"]), description["features"])
    host = None if calls is None else _host(name, calls, description["num_devices"])
    if "gpu" in description:
        restored: GpuFunction = (
            _gpu_code()
            .restore(code, description["gpu"], sections)
            .function(
                name,
                parameters,
                results,
                arena_bytes=description["arena_bytes"],
                constants=constants_of(description["constants"], sections["constants"]),
                aliases=dict(description["aliases"]),
                host=host,
                flush_denormals=description["flush_denormals"],
                places=dict(description["places"]),
            )
        )
        return restored
    return CompiledFunction(
        name,
        code.entry,
        parameters,
        results,
        arena_bytes=description["arena_bytes"],
        constants=constants_of(description["constants"], sections["constants"]),
        aliases=dict(description["aliases"]),
        flush_denormals=description["flush_denormals"],
        keep_alive=code,
        host=host,
        collectives=_plain(description["collectives"]),
        num_devices=description["num_devices"],
        places=dict(description["places"]),
        guard=knobs.guard or "",
    )


def _cut(section: memoryview, sizes: Sequence[int]) -> list[bytes]:
    ends = list(accumulate(sizes))
    if not ends or ends[-1] != len(section) or min(sizes) < 0:
        raise LoadError("the program's code is not of the length that it should have")
    return [bytes(section[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def check_machine(description: Mapping[str, Any]) -> None:
    """Raise LoadError when code that was made on another machine cannot run on this one."""
    if description["machine"] != processor.machine():
        raise LoadError(f"the program was compiled for {description['machine']}, and this is {processor.machine()}")
    missing = sorted(set(description["features"]) - processor.features())
    if missing:
        level = processor.level()
        raise LoadError(
            f"the program was compiled for a processor with {', '.join(missing)}, which this one does not have",
            hint=f"target_cpu={level!r} where it is compiled (stablexla-compile --target-cpu={level})" if level else "",
        )


def _host(name: str, calls: Sequence[Mapping[str, Any]], num_devices: int) -> Host:
    try:
        return Host(name, [_plain(call) for call in calls], num_devices)
    except CompileError as error:  # a kernel of a composite that is not registered
        raise LoadError(error.summary, hint=error.hint) from None


def constants_of(sizes: Iterable[int], section: memoryview) -> list[np.ndarray[Any, Any]]:
    """Return the constants in a section of a file, by their sizes."""
    made, at = [], 0
    for size in sizes:
        made.append(np.frombuffer(section, np.uint8, size, at))
        at += size + -size % ALIGNMENT
    return made


def _plain(value: Any) -> Any:
    """Return JSON values with tuples restored."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, list) else value


# ---- external symbols of the code ------------------------------------------------------------------------------------


def _addresses(names: Sequence[str]) -> dict[str, int]:
    """Return the addresses of functions other than those of custom calls."""
    elsewhere = (C_FUNCTION, *mpi_symbols.PREFIXES)
    found = {name: find_symbol(_IN_PLACE_OF.get(name, name)) for name in names if not name.startswith(elsewhere)}
    found |= mpi_symbols.addresses(names)
    missing = [name for name, address in found.items() if not address]
    if missing:
        found |= _registered(missing)
    return {name: address for name, address in found.items() if address}


def _registered(names: Sequence[str]) -> dict[str, int]:
    """Return functions that only some programs need; importing their registries is slow."""
    found = {}
    if "memrefCopy" in names:
        found["memrefCopy"] = _address_in_mlir("memrefCopy")
    if set(names) - set(found):
        from stablexla.targets.host import lapack  # noqa: F401
        from stablexla.targets.host.symbol_table import addresses

        found |= {name: address.value or 0 for name, address in addresses(names).items()}
    return found


def _address_in_mlir(name: str) -> int:
    spec = importlib.util.find_spec("mlir")
    places = list(spec.submodule_search_locations or ()) if spec else []
    library = ctypes.CDLL(str(Path(places[0]) / "lib" / shared_library("libmlir_c_runner_utils")))
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


def _custom_calls(names: Iterable[str]) -> dict[str, CustomCallTarget]:
    """Return the targets of custom calls that are C functions, by their symbols."""
    targets = {name: name.removeprefix(C_FUNCTION) for name in names if name.startswith(C_FUNCTION)}
    known = custom_calls.TARGETS
    _check_registered([t for t in targets.values() if t not in known or not known[t].address], "a C function")
    return {name: known[target] for name, target in targets.items()}


def _check_functions(calls: Iterable[Mapping[str, Any]]) -> None:
    """Check that the functions of host calls are registered."""
    known = custom_calls.TARGETS
    wanted = {kind: {c["target"]: None for c in calls if c["call"] == kind} for kind in ("function", "ffi")}
    missing = [t for t in wanted["function"] if t not in known or known[t].function is None]
    _check_registered(missing, "a Python function")
    missing = [t for t in wanted["ffi"] if t not in known or not known[t].stages]
    _check_registered(missing, "a handler of XLA's foreign function interface")


def _check_registered(missing: Sequence[str], what: str) -> None:
    if missing:
        raise LoadError(
            f"the program makes custom calls of {', '.join(map(repr, missing))}, for which {what} must be registered",
            hint=f"sx.register_custom_call({missing[0]!r}, function) before it is loaded",
        )
