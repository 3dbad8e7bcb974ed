"""XLA:CPU through jaxlib's own client on the same text; arguments are device buffers before time is taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.engines.base import Array, MissingEngineError
from benchmarks.programs.registry import Program


class _Prepared:
    compile_seconds = None

    def __init__(self, client: Any, text: str) -> None:
        from jaxlib import xla_client

        devices = xla_client.DeviceList(tuple(client.local_devices()))
        self._executable = client.compile_and_load(text, devices, xla_client.CompileOptions())

    def bind(self, arguments: Sequence[Array]) -> None:
        import jax

        with jax.enable_x64(True):
            self._buffers = [jax.device_put(a) for a in arguments]
        jax.block_until_ready(self._buffers)

    def _execute(self, buffers: list[Any]) -> list[Any]:
        sharded = self._executable.execute_sharded(buffers)
        arrays = [each[0] for each in sharded.disassemble_into_single_device_arrays()]
        for array in arrays:
            array.block_until_ready()
        return arrays

    def run(self) -> None:
        self._execute(self._buffers)

    def results(self) -> list[Array]:
        return [np.asarray(array) for array in self._execute(self._buffers)]

    def from_numpy(self, arguments: Sequence[Array]) -> Callable[[], object]:
        import jax

        def call() -> list[Array]:
            return [np.asarray(array) for array in self._execute([jax.device_put(a) for a in arguments])]

        return call


class _Engine:
    name = "xla"

    def __init__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        try:
            import jax
        except ImportError:
            raise MissingEngineError("xla needs JAX: pip install 'stablexla[bench]'") from None
        self._client = jax.devices("cpu")[0].client
        self.version = f"jaxlib {version('jaxlib')}"

    def prepare(self, program: Program, text: str) -> _Prepared:
        return _Prepared(self._client, text)


engine = _Engine
