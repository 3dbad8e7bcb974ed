"""IREE, compiled for this processor; arguments are device arrays before time is taken. Compiling starts a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.engines.base import Array, MissingEngineError
from benchmarks.programs.registry import Program

COMPILE = [sys.executable, "-m", "iree.compiler.tools.scripts.iree_compile", "-"]
FLAGS = [
    "--iree-input-type=stablehlo",
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O2",
]


def _compile(text: str) -> bytes:
    """In a process of its own: a third MLIR does not come into this one."""
    return subprocess.run([*COMPILE, *FLAGS], input=text.encode(), capture_output=True, check=True).stdout


class _Prepared:
    def __init__(self, text: str, arguments: Sequence[Array]) -> None:
        runtime = import_module("iree.runtime")
        module = _compile(text)
        config = runtime.Config("local-task")
        loaded = runtime.load_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, module), config)
        self._function = loaded.main
        self._arguments = [runtime.asdevicearray(config.device, a) for a in arguments]

    def _execute(self) -> list[Any]:
        found = self._function(*self._arguments)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    def run(self) -> None:
        self._execute()

    def results(self) -> list[Array]:
        return [np.asarray(each.to_host()) for each in self._execute()]


class _Engine:
    name = "iree"

    def __init__(self) -> None:
        try:
            import_module("iree.runtime")
            version("iree-base-compiler")
        except ImportError:
            raise MissingEngineError("iree needs its packages: pip install 'stablexla[bench]'") from None
        self.version = version("iree-base-runtime")

    def prepare(self, program: Program, text: str, arguments: Sequence[Array]) -> _Prepared:
        return _Prepared(text, arguments)


engine = _Engine
