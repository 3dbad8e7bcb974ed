"""PyTorch, where a program is one of its modules: the module itself, called as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from benchmarks.engines.base import Array, MissingEngineError
from benchmarks.programs.registry import Program


class Module:
    """A module and its inputs; arguments for the StableHLO are the same tensors."""

    compile_seconds = None

    def __init__(self, call: Callable[..., Any], inputs: Sequence[Any]) -> None:
        self.call, self.inputs = call, inputs

    def bind(self, arguments: Sequence[Array]) -> None:
        pass

    def run(self) -> Any:
        import torch

        with torch.no_grad():
            return self.call(*self.inputs)

    def results(self) -> list[Array]:
        from torch.utils import _pytree

        return [tensor.numpy() for tensor in _pytree.tree_leaves(self.run())]

    def from_numpy(self, arguments: Sequence[Array]) -> Callable[[], object]:
        return self.results


class Torch:
    """The modules of programs that have one."""

    name = "torch"

    def __init__(self) -> None:
        if find_spec("torch") is None:
            raise MissingEngineError(f"{self.name} needs PyTorch: pip install 'stablexla[torch]'")
        import torch

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        self.version = torch.__version__

    def prepare(self, program: Program, text: str) -> Module | None:
        from benchmarks.real.registry import TorchProgram

        return Module(*program.call()) if isinstance(program, TorchProgram) else None


engine = Torch
