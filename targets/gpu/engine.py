"""A program for a GPU as something to call: where there is no driver, it says so."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Sequence
from typing import Any

import mlir.ir as ir

from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.targets.gpu.emit import ON_HOST
from stablexla.targets.options import CompileOptions
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.runtime.host import Host
from stablexla.targets.signature import Signature


class GpuFunction:
    """What `Executable` calls, in the shape of the CPU's `CompiledFunction`."""

    arena_bytes = 0
    constants: tuple[Any, ...] = ()
    aliases: dict[int, int]
    host: Host | None = None
    collectives: tuple[Any, ...] = ()

    def __init__(self, signature: Signature, ptx: str) -> None:
        self.name = signature.name
        self.parameters: Sequence[ArraySpec] = signature.parameter_specs()
        self.results: Sequence[ArraySpec] = signature.result_specs()
        self.ptx = ptx
        self.aliases = {}

    def __call__(self, *arguments: object) -> Any:
        return self.execute(arguments)

    def execute(self, arguments: Sequence[object], donate: bool = False) -> list[Any]:
        """Raises ExecutionError: there is no driver, or, where there is one, no runtime yet."""
        if not has_driver():
            raise ExecutionError(f"{self.name}: no CUDA driver", hint="libcuda.so.1, which comes with NVIDIA's driver")
        raise ExecutionError(f"{self.name}: the runtime for GPUs is not there yet")

    def execute_replicated(self, *_: object) -> list[list[Any]]:
        """Raises ExecutionError, as `execute` does."""
        return [self.execute(())]

    def seed(self, number: int) -> None:
        """Nothing depends on it, as long as nothing is run."""

    @property
    def flush_denormals(self) -> bool:
        """What a saved program would begin with.

        Raises:
            CompileError: always.
        """
        raise CompileError(
            f"{self.name}: programs for GPUs cannot be saved or compiled in another process yet",
            hint='write what ir("ptx") gives',
        )


def has_driver() -> bool:
    """Whether the driver's library can be loaded."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def load(module: ir.Module, signature: Signature, options: CompileOptions) -> Any:
    """The program, ready to be called; no driver is looked for before it is."""
    if ON_HOST in module.operation.attributes:
        names = dict.fromkeys(ir.StringAttr(name).value for name in ir.ArrayAttr(module.operation.attributes[ON_HOST]))
        warnings.warn(f"{signature.name}: run on the host, not on the GPU: {', '.join(names)}", stacklevel=2)
    return GpuFunction(signature, "")
