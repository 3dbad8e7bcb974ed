"""Programs of public libraries, each made when it is asked for: importing its library may take seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import jax
import numpy as np

from benchmarks.programs.registry import Array, Program, Work, enter
from benchmarks.traced import arithmetic

Made = tuple[Any, tuple[Any, ...]]
"""A function or module, and the arguments of a call."""
Make = Callable[[], Made]
EPS = 1e-3
"""Adam's: with its usual 1e-8 a first step goes by the sign of each gradient, also of one that is rounding alone."""


@dataclass(frozen=True)
class JaxProgram(Program):
    """A function of a library on JAX, with the library's own trees of arrays as arguments.

    Attributes:
        make: the function and its arguments.
    """

    make: Make

    def text(self) -> str:
        return str(_traced(self.make)[0].lower().as_text())

    def arguments(self, seed: int = 0) -> list[Array]:
        """Always the same: what the library has initialised."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(_traced(self.make)[1])]

    def work(self) -> Work:
        return self._work

    @cached_property
    def _work(self) -> Work:
        form = _traced(self.make)[0].jaxpr
        read, written = (
            float(sum(prod(a.shape) * a.dtype.itemsize for a in each)) for each in (form.in_avals, form.out_avals)
        )
        return Work(arithmetic(form.jaxpr), read, written, self.peak)


@dataclass(frozen=True)
class TorchProgram(Program):
    """A module of PyTorch that returns tensors; its parameters are arguments of the StableHLO.

    Attributes:
        make: the module and the tensors that it is called with.
    """

    make: Make

    def text(self) -> str:
        from stablexla.interop import torch as sx_torch

        return str(sx_torch.stablehlo_of(_exported(self.make)[2]).text(locations=True))

    def arguments(self, seed: int = 0) -> list[Array]:
        """Parameters, buffers and constants of the module, and the tensors of the call."""
        from stablexla.interop import torch as sx_torch

        _, inputs, exported = _exported(self.make)
        return [each.detach().numpy() for each in (*sx_torch.held_by(exported).values(), *inputs)]

    def work(self) -> Work:
        return self._work

    def call(self) -> Made:
        """The module itself, for engines of PyTorch's own."""
        return _exported(self.make)[:2]

    @cached_property
    def _work(self) -> Work:
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        module, inputs = self.call()
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            results = module(*inputs)
        written = sum(each.nbytes for each in torch.utils._pytree.tree_leaves(results))
        read = sum(each.nbytes for each in self.arguments())
        return Work(float(counter.get_total_flops()), float(read), float(written), self.peak)


# Only the latest is kept: the weights of all of them together would fill the memory of a small machine.
@lru_cache(maxsize=1)
def _traced(make: Make) -> Any:
    function, arguments = make()
    return jax.jit(function, keep_unused=True).trace(*arguments), arguments


@lru_cache(maxsize=1)
def _exported(make: Make) -> Any:
    import torch

    module, inputs = make()
    with torch.no_grad():
        return module, inputs, torch.export.export(module, inputs, strict=False)


def of_jax(name: str, summary: str, *needs: str, **more: Any) -> Callable[[Make], Make]:
    """Enters what the function returns into the list of programs.

    Args:
        needs: the packages that it imports, beside JAX.
    """

    def register(make: Make) -> Make:
        enter(JaxProgram(name, summary, make, needs=needs, **more))
        return make

    return register


def of_torch(name: str, summary: str, *needs: str, **more: Any) -> Callable[[Make], Make]:
    """The same with a module of PyTorch."""

    def register(make: Make) -> Make:
        enter(TorchProgram(name, summary, make, needs=("torch", *needs), **more))
        return make

    return register
