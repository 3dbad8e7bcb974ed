"""PyTorch's own compiler, `torch.compile`, on the modules that `torch_engine` calls as they are."""

from __future__ import annotations

from benchmarks.engines.torch_engine import Module, Torch
from benchmarks.programs.registry import Program


class _Engine(Torch):
    name = "inductor"

    def prepare(self, program: Program, text: str) -> Module | None:
        import torch

        plain = super().prepare(program, text)
        if plain is None:
            return None
        torch._dynamo.reset()
        made = Module(torch.compile(plain.call), plain.inputs)
        made.run()  # it compiles at the first call
        return made


engine = _Engine
