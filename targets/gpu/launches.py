"""What the code of `main` and the image of the kernels say about each other: a table in the module, by numbers.

The pass `stablexla-launch-gpu` writes it, and the loader takes it off.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

from stablexla.dialects.errors import CompileError

KERNELS, IMAGE = "stablexla.gpu_kernels", "stablexla.gpu_image"
"""Attributes of the module: what is launched, by number, and the PTX in which it is."""


@dataclass
class LaunchTable:
    """The kernels that `main` launches, in the order of their numbers.

    Attributes:
        ptx: where they are.
        shared_bytes: for each kernel the most that a launch of it asks for.
    """

    ptx: str
    shared_bytes: dict[str, int]

    def number(self, kernel: str, shared_bytes: int) -> int:
        """The kernel's number; it is noted that a launch asks for so many bytes."""
        self.shared_bytes[kernel] = max(shared_bytes, self.shared_bytes.get(kernel, 0))
        return list(self.shared_bytes).index(kernel)

    def write(self, module: ir.Module) -> None:
        """Notes it on a module."""
        i64 = ir.IntegerType.get_signless(64)
        rows: list[ir.Attribute] = [
            ir.DictAttr.get({"name": ir.StringAttr.get(name), "shared_bytes": ir.IntegerAttr.get(i64, size)})
            for name, size in self.shared_bytes.items()
        ]
        module.operation.attributes[KERNELS] = ir.ArrayAttr.get(rows)
        module.operation.attributes[IMAGE] = ir.StringAttr.get(self.ptx)

    @staticmethod
    def take(module: ir.Module) -> LaunchTable:
        """What is noted on a module, from which it is removed.

        Raises:
            CompileError: nothing is.
        """
        attributes = module.operation.attributes
        if KERNELS not in attributes or IMAGE not in attributes:
            raise CompileError("the pipeline left no table of kernels to launch", hint="stablexla-launch-gpu makes it")
        rows = [ir.DictAttr(row) for row in ir.ArrayAttr(attributes[KERNELS])]
        sizes = {ir.StringAttr(row["name"]).value: ir.IntegerAttr(row["shared_bytes"]).value for row in rows}
        found = LaunchTable(ir.StringAttr(attributes[IMAGE]).value, sizes)
        del attributes[KERNELS], attributes[IMAGE]
        return found
