"""The runtime on a simulated driver, and small programs to run on it."""

from __future__ import annotations

import ctypes
import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime import GpuFunction, _runtime
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.programs import program

Array = np.ndarray[Any, Any]
X = np.arange(40, dtype=np.float32)


@contextmanager
def simulated(**settings: Any) -> Iterator[ctypes.CDLL]:
    """A fresh driver of the simulator's; `settings` are its. It takes PTX alone."""
    with simulator.settings(**settings) as driver, pytest.MonkeyPatch.context() as patch:
        patch.setenv("STABLEXLA_PTXAS", "none")
        _runtime.use_cuda_driver(str(simulator.library()))
        gc.freeze()  # so that only what the test makes is looked through
        try:
            yield driver
        finally:
            gc.collect()
            gc.unfreeze()
            _runtime.use_cuda_driver(None)


def calls(driver: ctypes.CDLL, function: str) -> int:
    """How often the driver's function was called."""
    return int(driver.simulator_calls(function.encode()))


def compiled(build: Callable[..., Any], *arrays: Array) -> sx.Executable:
    return sx.compile(program(build, *arrays), target="gpu:sm_80")


@functools.cache
def twice() -> sx.Executable:
    """x * 2 + 1."""
    return compiled(lambda b, x: x * 2.0 + 1.0, X)


@functools.cache
def plus() -> sx.Executable:
    """x + y, and x - y."""
    return compiled(lambda b, x, y: (x + y, x - y), X, X)


@functools.cache
def donating() -> sx.Executable:
    """x * 2 + y, which may lie where x lay."""
    text = """func.func @main(%x: tensor<40xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<40xf32>) -> tensor<40xf32> {
      %0 = stablehlo.add %x, %x : tensor<40xf32>
      %1 = stablehlo.add %0, %y : tensor<40xf32>
      return %1 : tensor<40xf32>
    }"""
    return sx.compile(text, target="gpu:sm_80")


def native(executable: sx.Executable) -> GpuFunction:
    function = executable._function
    assert isinstance(function, GpuFunction)
    return function


class Foreign:
    """An array of another library: it gives by DLPack what one of ours has, and notes for which streams."""

    def __init__(self, array: sx.gpu.DeviceArray, version: bool = True) -> None:
        self.array, self.version = array, version
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        if "max_version" in keywords and not self.version:
            raise TypeError("no such argument")
        self.streams.append(keywords["stream"])
        return self.array.__dlpack__(**keywords)


class WithInterface:
    """An array of another library, by `__cuda_array_interface__`."""

    def __init__(self, array: sx.gpu.DeviceArray, **changes: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changes}
