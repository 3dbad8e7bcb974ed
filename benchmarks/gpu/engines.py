"""Who takes part on a GPU: each engine with its arguments on the device, calls that return before they are done.

stablexla and XLA compile the same StableHLO. PyTorch, its compiler and Triton have the program in their own words, in
`torch_programs.py` and `triton_kernels.py`; what they have no words for, they leave out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

import stablexla as sx
from benchmarks.engines.base import Array, MissingEngineError
from benchmarks.programs.registry import Program

ENGINES = ("stablexla", "xla", "torch", "inductor", "triton")


class OnDevice(ABC):
    """A program that is compiled.

    Attributes:
        sets: how many copies of the arguments take turns, so that none is in a cache when it is used again.
    """

    compile_seconds = None
    sets = 1

    def bind(self, arguments: Sequence[Array]) -> None:
        """Puts the arguments on the device, as often as there are sets."""
        self._sets = [[self.put(each) for each in arguments] for _ in range(self.sets)]
        self._turn = 0
        self.wait()

    def run(self) -> None:
        """Begins a call; its results are dropped."""
        self._turn = (self._turn + 1) % len(self._sets)
        self._last = self.call(self._sets[self._turn])

    def results(self) -> list[Array]:
        """The results of a call."""
        return [self.get(each) for each in self.call(self._sets[0])]

    @abstractmethod
    def put(self, array: Array) -> Any:
        """An array on the device."""

    @abstractmethod
    def get(self, array: Any) -> Array:
        """An array back on the host."""

    @abstractmethod
    def call(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Begins a call, and gives its results-to-be."""

    @abstractmethod
    def wait(self) -> None:
        """Returns when all calls are done."""


class _Ours(OnDevice):
    def __init__(self, text: str) -> None:
        self._executable = sx.compile(text, target="gpu")
        self._last: Sequence[Any] = ()

    def put(self, array: Array) -> Any:
        return sx.gpu.put(array)

    def get(self, array: Any) -> Array:
        return np.asarray(array)

    def call(self, arguments: Sequence[Any]) -> Sequence[Any]:
        return self._executable.execute(arguments)

    def wait(self) -> None:
        for array in getattr(self, "_last", ()):
            array.block_until_ready()


class Ours:
    """stablexla, for the chip that is there."""

    name = "stablexla"

    def __init__(self) -> None:
        if not sx.gpu.is_available():
            raise MissingEngineError("stablexla: no CUDA driver, or no GPU")
        self.version = version("stablexla")

    def prepare(self, program: Program, text: str) -> OnDevice:
        return _Ours(text)


class _Xla(OnDevice):
    def __init__(self, jax: Any, device: Any, text: str) -> None:
        from jaxlib import xla_client

        self._jax, self._device = jax, device
        devices = xla_client.DeviceList((device,))
        self._executable = device.client.compile_and_load(text, devices, xla_client.CompileOptions())

    def put(self, array: Array) -> Any:
        return self._jax.device_put(array, self._device)

    def get(self, array: Any) -> Array:
        return np.asarray(array)

    def call(self, arguments: Sequence[Any]) -> Sequence[Any]:
        sharded = self._executable.execute_sharded(list(arguments))
        return [each[0] for each in sharded.disassemble_into_single_device_arrays()]

    def wait(self) -> None:
        self._jax.block_until_ready(getattr(self, "_last", ()))


class Xla:
    """XLA for GPUs, by JAX's client."""

    name = "xla"

    def __init__(self) -> None:
        try:
            import jax

            self._device = jax.devices("gpu")[0]
        except (ImportError, RuntimeError):
            raise MissingEngineError("xla needs JAX with its plugin: pip install 'jax[cuda13]'") from None
        self._jax = jax
        self.version = f"jaxlib {version('jaxlib')}"

    def prepare(self, program: Program, text: str) -> OnDevice:
        return _Xla(self._jax, self._device, text)


class _Torch(OnDevice):
    def __init__(self, torch: Any, function: Callable[..., Any], device: str) -> None:
        self._torch, self._function, self._device = torch, function, device

    def put(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16).to(self._device)
        return self._torch.from_numpy(array).to(self._device)

    def get(self, array: Any) -> Array:
        if array.dtype == self._torch.bfloat16:
            bits: Array = array.cpu().view(self._torch.int16).numpy()
            return bits.view(np.asarray(0, dtype=sx.bf16.dtype).dtype)
        return np.asarray(array.cpu().numpy())

    def call(self, arguments: Sequence[Any]) -> Sequence[Any]:
        with self._torch.no_grad():
            return [self._function(*arguments)]

    def wait(self) -> None:
        if self._device == "cuda":
            self._torch.cuda.synchronize()


class Torch:
    """PyTorch's own kernels, those of the libraries that it brings; on the CPU only to try the programs."""

    name = "torch"

    def __init__(self, device: str = "cuda") -> None:
        try:
            self._torch = import_module("torch")
        except ImportError:
            raise MissingEngineError("torch is not installed: pip install torch") from None
        if device == "cuda" and not self._torch.cuda.is_available():
            raise MissingEngineError("torch sees no GPU")
        self._device = device
        self._torch.backends.cuda.matmul.allow_tf32 = False
        self._torch.backends.cudnn.allow_tf32 = False
        self.version = str(self._torch.__version__)

    def prepare(self, program: Program, text: str) -> OnDevice | None:
        from benchmarks.gpu.torch_programs import function_of

        function = function_of(program, self._torch)
        return None if function is None else _Torch(self._torch, self.changed(function), self._device)

    def changed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What is called in the place of a function of PyTorch's."""
        return function


class Inductor(Torch):
    """PyTorch's compiler, which writes Triton."""

    name = "inductor"

    def changed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled: Callable[..., Any] = self._torch.compile(function, mode="max-autotune-no-cudagraphs")
        return compiled


class Triton(Torch):
    """Kernels in Triton, written by hand."""

    name = "triton"

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(device)
        try:
            self.version = version("triton")
        except PackageNotFoundError:
            raise MissingEngineError("triton is not installed: pip install triton") from None

    def prepare(self, program: Program, text: str) -> OnDevice | None:
        from benchmarks.gpu.triton_kernels import KERNELS

        function = KERNELS.get(program.name)
        return None if function is None else _Torch(self._torch, function, self._device)


MAKERS: dict[str, Callable[[], Any]] = {
    "stablexla": Ours,
    "xla": Xla,
    "torch": Torch,
    "inductor": Inductor,
    "triton": Triton,
}
