"""The pass that gives the arrays of `main` memory on the device; what moves between them is copied whole."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import memref

from stablexla.lowering.kernels import KIND
from stablexla.targets.cpu.assign import BufferedMain
from stablexla.targets.cpu.buffers import BufferAssignment
from stablexla.targets.passes import module_pass


class DeviceMain(BufferedMain):
    """A `main` of the host for buffers of the device."""

    def _copy_whole(self, source: ir.Value, target: ir.Value) -> None:
        memref.copy(source, target)


@module_pass("stablexla-assign-device-buffers", "gives each array of main a buffer on the device, as on the CPU")
def assign_device_buffers(module: ir.Module) -> None:
    """Rewrites `main` and drops the kernels' functions on tensors."""
    with module.context, ir.Location.unknown():
        assignment = BufferAssignment(module)
        DeviceMain(assignment, 1).write()
        assignment.main.erase()
        for view in list(module.body.operations):
            if KIND in view.operation.attributes:
                view.operation.erase()
