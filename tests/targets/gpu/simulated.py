"""The simulated driver: builds it, runs PTX texts with numpy's arrays on it, and programs under the real runtime.

`run_ptx(text, kernel, grid, block, arrays)` needs nothing of the runtime; `in_runtime()` is the runtime with this
driver. The library's path, for the knob STABLEXLA_CUDA_DRIVER, is `library()`. simulator/README.md says what it checks
and how it is set up.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import _runtime

SOURCES = Path(__file__).parent / "simulator"
ROOT = Path(__file__).parents[3]
FLAGS = ("-O1", "-ftree-vectorize", "-finline-small-functions", "-march=native", "-ffp-contract=off")
FLAGS += ("-std=c++17", "-fPIC", "-w")
Array = np.ndarray[Any, Any]


class SimulatorError(RuntimeError):
    """What the simulated driver refused or found wrong; `code` is the driver's."""

    def __init__(self, code: int, report: str) -> None:
        super().__init__(f"error {code}: {report}")
        self.code = code
        self.report = report


def _digest(*parts: bytes) -> str:
    h = hashlib.sha256()
    for part in parts:
        h.update(part + b"\0")
    return h.hexdigest()[:16]


def _processor() -> bytes:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return b""
    return next((line for line in lines if line.startswith("flags")), "").encode()


def _folder() -> Path:
    wanted = ROOT / "build" / "simulator"
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        if os.access(wanted, os.W_OK):
            return wanted
    except OSError:
        pass
    other = Path(tempfile.gettempdir()) / f"stablexla-simulator-{os.getuid()}"
    other.mkdir(exist_ok=True)
    return other


def _make(target: Path, command: Sequence[str]) -> Path:
    """Runs a command that writes the target, under another name first: others may do the same now."""
    if not target.exists():
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        subprocess.run([*command, "-o", str(part)], check=True)
        part.rename(target)
    return target


@functools.cache
def library() -> Path:
    """The path of the simulator as a shared library; compiled when its sources or the machine are new."""
    folder = _folder()
    compiler = subprocess.run(["g++", "--version"], capture_output=True, check=True).stdout
    headers = [*sorted(SOURCES.glob("*.h")), ROOT / "targets/runtime/cpp/gpu/cuda_abi.h"]
    common = _digest(compiler, *(h.read_bytes() for h in headers), " ".join(FLAGS).encode(), _processor())
    every = folder / f"everything-{common}.h"
    every.write_text(f'#include "{SOURCES}/everything.h"\n')
    sources = sorted(SOURCES.glob("*.cpp"))
    wanted = {s: folder / f"{s.stem}-{_digest(s.read_bytes(), common.encode())}.o" for s in sources}
    built = folder / f"libcuda-{_digest(*(o.name.encode() for o in wanted.values()))}.so.1"
    with (folder / "lock").open("w") as lock:  # others wait for one build
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            _build(built, every, wanted)
    return built


def _build(built: Path, every: Path, wanted: dict[Path, Path]) -> None:
    if not all(o.exists() for o in wanted.values()):
        _make(every.with_name(f"{every.name}.gch"), ["g++", *FLAGS, "-x", "c++-header", str(every)])
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 2) // 2)) as pool:
        command = ["g++", *FLAGS, "-include", str(every), "-c"]
        list(pool.map(lambda s: _make(wanted[s], [*command, str(s)]), wanted))
    _make(built, ["g++", "-shared", *map(str, wanted.values())])
    every.with_name(f"{every.name}.gch").unlink(missing_ok=True)


@functools.cache
def driver() -> ctypes.CDLL:
    """The simulator in this process, initialised. The runtime gets the same one when it opens `library()`."""
    found = ctypes.CDLL(str(library()))
    found.simulator_report.restype = ctypes.c_char_p
    for name in ("allocated_bytes", "largest_bytes", "host_bytes", "handles", "calls", "instructions", "launches"):
        getattr(found, f"simulator_{name}").restype = ctypes.c_uint64
    found.simulator_fail.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_int)
    return found


def report() -> str:
    """What was found wrong last."""
    text: bytes = driver().simulator_report()
    return text.decode()


def allocated_bytes(device: int = 0) -> int:
    """Bytes of a device's memory that nobody has given back."""
    return int(driver().simulator_allocated_bytes(device))


def fail(function: str, nth: int, code: int) -> None:
    """The nth call from now of a driver's function answers with an error code."""
    driver().simulator_fail(function.encode(), nth, code)


@contextmanager
def in_runtime() -> Iterator[None]:
    """Programs that are compiled for a GPU run on the simulator, which takes PTX alone."""
    with knobs.scoped(ptxas=Path("none")):
        driver()
        _runtime.use_cuda_driver(str(library()))
        try:
            yield
        finally:
            _runtime.use_cuda_driver(None)


@contextmanager
def settings(**values: Any) -> Iterator[ctypes.CDLL]:
    """A fresh simulator: settings(chip=80, seed=3, lazy=1, memory=1 << 20, driver=12040, devices=1, checks="races").

    All that was allocated before is gone; so nothing of an earlier one may still be used.
    """
    names = {f"SIMULATOR_{name.upper()}": str(value) for name, value in values.items()}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        found = driver()
        found.simulator_reset()
        yield found
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        driver().simulator_reset()


def _check(code: int) -> None:
    if code:
        raise SimulatorError(code, report())


class Session:
    """Memory and launches of one device, for texts that run without the runtime."""

    def __init__(self, device: int = 0) -> None:
        self.driver = driver()
        _check(self.driver.cuInit(0))
        self.device = device
        self.context = ctypes.c_void_p()

    def __enter__(self) -> Session:
        _check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), self.device))
        _check(self.driver.cuCtxPushCurrent_v2(self.context))
        return self

    def __exit__(self, *error: object) -> None:
        self.driver.cuCtxPopCurrent_v2(None)
        self.driver.cuDevicePrimaryCtxRelease_v2(self.device)
        if report() and error[0] is not None:
            self.driver.simulator_reset()

    def allocate(self, nbytes: int) -> int:
        address = ctypes.c_uint64()
        _check(self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1))))
        return address.value

    def put(self, array: Array) -> int:
        data = np.ascontiguousarray(array)
        address = self.allocate(data.nbytes)
        _check(
            self.driver.cuMemcpyHtoDAsync_v2(
                ctypes.c_uint64(address), ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes), None
            )
        )
        return address

    def get(self, address: int, shape: Sequence[int], dtype: Any) -> Array:
        data = np.empty(shape, dtype)
        to, size = ctypes.c_void_p(data.ctypes.data), ctypes.c_size_t(data.nbytes)
        _check(self.driver.cuMemcpyDtoHAsync_v2(to, ctypes.c_uint64(address), size, None))
        return data

    def copy(self, to: int, source: int, nbytes: int) -> None:
        arguments = (ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(nbytes), None)
        _check(self.driver.cuMemcpyDtoDAsync_v2(*arguments))

    def free(self, address: int) -> None:
        _check(self.driver.cuMemFree_v2(ctypes.c_uint64(address)))

    def load(self, ptx: str) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        _check(self.driver.cuModuleLoadDataEx(ctypes.byref(module), ptx.encode(), 0, None, None))
        return module

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        _check(self.driver.cuModuleGetFunction(ctypes.byref(found), module, name.encode()))
        return found

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        parameters: Sequence[ctypes._SimpleCData[Any]],
        shared: int = 0,
    ) -> None:
        """Starts a kernel and waits for it; parameters are values of ctypes. Much shared memory is asked for first."""
        if shared > 48 * 1024:
            _check(self.driver.cuFuncSetAttribute(function, 8, shared))
        pointers = [ctypes.cast(ctypes.byref(p), ctypes.c_void_p) for p in parameters]
        array = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        _check(self.driver.cuLaunchKernel(function, *_three(grid), *_three(block), shared, None, array, None))
        _check(self.driver.cuCtxSynchronize())


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return (*sizes, 1, 1, 1)[:3]


def run_ptx(
    ptx: str,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arrays: Sequence[Array | np.generic | int],
    *,
    shared: int = 0,
) -> list[Array]:
    """Runs one kernel of a PTX text and gives what its arrays hold then.

    An array becomes an address on the device with its content; of what `unwritten` gives there is only the room there,
    which the kernel must not read before it has written it. Numbers of numpy are passed by value, as their type.

    Raises:
        SimulatorError: the text is not understood, or the kernel breaks a rule; says where.
    """
    with Session() as session:
        function = session.function(session.load(ptx), kernel)
        parameters: list[Any] = []
        places: list[tuple[int, Array]] = []
        for value in arrays:
            if isinstance(value, np.ndarray):
                address = session.allocate(value.nbytes) if isinstance(value, Unwritten) else session.put(value)
                places.append((address, value))
                parameters.append(ctypes.c_uint64(address))
            else:
                parameters.append(_scalar(value))
        session.launch(function, _three(grid), _three(block), parameters, shared)
        results = [session.get(address, value.shape, value.dtype) for address, value in places]
        for address, _ in places:
            session.free(address)
        return results


class Unwritten(np.ndarray[Any, Any]):
    """An array of which the device has only the room."""


def unwritten(shape: Sequence[int] | int, dtype: Any = np.float32) -> Unwritten:
    """Memory that a kernel must write before it reads it."""
    return np.zeros(shape, dtype).view(Unwritten)


def _scalar(value: Any) -> Any:
    kinds = {
        "i": (ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64),
        "f": (None, None, ctypes.c_float, ctypes.c_double),
    }
    number = np.int32(value) if isinstance(value, int) else np.asarray(value)[()]
    kind = "f" if number.dtype.kind == "f" else "i"
    made = kinds[kind][int(number.dtype.itemsize).bit_length() - 1]
    if made is None:
        return ctypes.c_uint16(int(number.view(np.uint16)))
    return made(number.item())
