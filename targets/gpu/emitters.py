"""The registry of GPU kernel emitters, and what a mapped kernel says about its launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.gpu.chips import GpuName

Emitter = Callable[[Kernel, GpuName], Emitted | None]
EMITTERS: dict[str, list[Emitter]] = {}

LAUNCH = "stablexla.launch"
"""Attribute of a function whose body says what one thread does: see `Launch`."""
THREADS = 256
MOST_BLOCKS = 1 << 16


@dataclass(frozen=True)
class Launch:
    """How many blocks run a kernel, and how many threads are in each, in x alone; what bytes these share."""

    blocks: int
    threads: int
    shared: int = 0

    @staticmethod
    def for_items(items: int) -> Launch:
        """A thread for each item; of very many items, each thread takes several."""
        threads = min(THREADS, -(-items // 32) * 32)
        return Launch(min(MOST_BLOCKS, -(-items // threads)), threads)

    def write(self, function: ir.Operation) -> None:
        """Notes it on a function."""
        function.attributes[LAUNCH] = ir.DenseI64ArrayAttr.get([self.blocks, self.threads, self.shared])

    @staticmethod
    def read(function: ir.Operation) -> Launch:
        """What is noted on a function."""
        return Launch(*map(int, ir.DenseI64ArrayAttr(function.attributes[LAUNCH])))


def launched_functions(module: ir.Module) -> dict[str, ir.Operation]:
    """The functions of a module whose bodies say what one thread does, by name."""
    return {
        ir.StringAttr(view.operation.attributes["sym_name"]).value: view.operation
        for view in module.body.operations
        if LAUNCH in view.operation.attributes
    }


def gpu_emitter(*kinds: str, first: bool = False) -> Callable[[Emitter], Emitter]:
    """Registers an emitter for kernels of `kinds`; it answers None, and changes nothing, when it cannot take one.

    With `first` it is asked before the others.
    """

    def register(function: Emitter) -> Emitter:
        for kind in kinds:
            EMITTERS.setdefault(kind, []).insert(0 if first else len(EMITTERS.get(kind, [])), function)
        return function

    return register
