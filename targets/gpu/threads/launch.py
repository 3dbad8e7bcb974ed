"""Launch configurations: how many blocks and threads run a kernel, noted on its function."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.configs import config_attribute, read_config

LAUNCH = "stablexla.launch"
"""Attribute of a function whose body is one thread's code: see `Launch`."""
THREADS = 256
MOST_BLOCKS = Gate("gpu-launch.most-blocks", 1 << 16, eager=1)


@dataclass(frozen=True)
class Launch:
    """Launch configuration: blocks of the grid, threads of a block (x alone), a block's shared memory in bytes."""

    blocks: int
    threads: int
    shared: int = 0

    @staticmethod
    def for_items(items: int) -> Launch:
        """Return a launch with a thread for each item; beyond a limit, a grid-stride loop takes several each."""
        threads = min(THREADS, -(-items // 32) * 32)
        return Launch(min(MOST_BLOCKS(), -(-items // threads)), threads)

    def write(self, function: ir.Operation) -> None:
        """Set the attribute on a function."""
        function.attributes[LAUNCH] = config_attribute(self)

    @staticmethod
    def read(function: ir.Operation) -> Launch:
        """Read the attribute of a function."""
        return read_config(Launch, function.attributes[LAUNCH], LAUNCH)


def launched_functions(module: ir.Module) -> dict[str, ir.Operation]:
    """Return a module's functions that hold one thread's code, by name."""
    return {symbol_of(view): view.operation for view in module.body.operations if LAUNCH in view.operation.attributes}
