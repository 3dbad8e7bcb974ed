"""Launches of `main`, and the table of kernel numbers that its code and the kernels' image share.

The pass `stablexla-launch-gpu` writes the table into the module, and the loader takes it off.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import constant_of
from stablexla.targets.gpu.threads import Launch

KERNELS, IMAGE = "stablexla.gpu_kernels", "stablexla.gpu_image"
"""Attributes of the module: launched kernels, by number, and the PTX that holds them."""


@dataclass
class LaunchTable:
    """The kernels that `main` launches, in the order of their numbers.

    Attributes:
        ptx: text with the kernels.
        shared_bytes: each kernel's largest shared memory of a launch.
    """

    ptx: str
    shared_bytes: dict[str, int]

    def number(self, kernel: str, shared_bytes: int) -> int:
        """Return the kernel's number, and record a launch's shared memory."""
        self.shared_bytes[kernel] = max(shared_bytes, self.shared_bytes.get(kernel, 0))
        return list(self.shared_bytes).index(kernel)

    def write(self, module: ir.Module) -> None:
        """Set the table as attributes of a module."""
        i64 = ir.IntegerType.get_signless(64)
        rows: list[ir.Attribute] = [
            ir.DictAttr.get({"name": ir.StringAttr.get(name), "shared_bytes": ir.IntegerAttr.get(i64, size)})
            for name, size in self.shared_bytes.items()
        ]
        module.operation.attributes[KERNELS] = ir.ArrayAttr.get(rows)
        module.operation.attributes[IMAGE] = ir.StringAttr.get(self.ptx)

    @staticmethod
    def take(module: ir.Module) -> LaunchTable:
        """Return a module's table and remove its attributes.

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


def launch_of(op: ir.Operation) -> Launch:
    """Return the configuration of a `gpu.launch_func`.

    Raises:
        CompileError: it is not constant, or blocks or threads are numbered in more than one dimension.
    """
    given, _ = _operands_of(op)
    numbers = [constant_of(value) for value in given]
    blocks, *more_blocks, threads, height, depth = numbers[:6]
    shared = numbers[6] if len(numbers) > 6 else 0
    if blocks is None or threads is None or shared is None:
        raise CompileError(f"{kernel_of(op)}: a launch's numbers of blocks, threads and bytes must be known")
    if (*more_blocks, height, depth) != (1, 1, 1, 1):
        raise CompileError(f"{kernel_of(op)}: blocks and threads are numbered in one dimension alone")
    return Launch(blocks, threads, shared)


def parameters_of(op: ir.Operation) -> list[ir.Value]:
    """Return the kernel parameters of a `gpu.launch_func`."""
    return _operands_of(op)[1]


def kernel_of(op: ir.Operation) -> str:
    """Return the name of the kernel of a `gpu.launch_func`."""
    return str(ir.SymbolRefAttr(op.attributes["kernel"]).value[-1])


def _operands_of(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    """Split a launch's operands into sizes and kernel parameters."""
    *sizes, parameters, _ = (int(n) for n in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    first = sum(sizes)
    operands = list(op.operands)
    return operands[:first], operands[first : first + parameters]
