"""Buffer assignment for `main` on the device; copies between its arrays are whole-buffer copies."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import mlir.ir as ir
from mlir.dialects import memref

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.kernels import COMBINER, KIND
from stablexla.targets.buffers.assign import BufferedMain
from stablexla.targets.buffers.assignment import BufferAssignment
from stablexla.targets.gpu.launch.device_scalars import users_of
from stablexla.targets.gpu.launch.host_calls import functions_of_host
from stablexla.targets.pipeline.passes import module_pass


class DeviceAssignment(BufferAssignment):
    """Extend a scalar's source buffer's live range to the last kernel that may load the scalar by itself."""

    def _users(self, value: ir.Value) -> Iterator[tuple[ir.Operation, int]]:
        for user, position in super()._users(value):
            yield user, position
            if user.name == "tensor.extract":
                for reader in users_of(user):
                    yield reader, self._end[reader]


class DeviceMain(BufferedMain):
    """Rewrite the host's `main` onto device buffers."""

    def __init__(self, assignment: BufferAssignment, num_threads: int, on_host: Collection[str]) -> None:
        super().__init__(assignment, num_threads)
        self._on_host = on_host

    def _copy_whole(self, source: ir.Value, target: ir.Value) -> None:
        memref.copy(source, target)

    def _share(self, call: ir.Operation, items: int, grain: int) -> None:
        """Share host functions alone among threads of the host."""
        if ir.FlatSymbolRefAttr(call.attributes["callee"]).value in self._on_host:
            super()._share(call, items, grain)


@module_pass("stablexla-assign-device-buffers", "gives each array of main a buffer on the device, as on the CPU")
def assign_device_buffers(module: ir.Module, *, num_threads: int = 1) -> None:
    """Rewrite `main` onto device buffers and drop the kernels' functions on tensors.

    Args:
        num_threads: as for `stablexla-assign-buffers`, for calls of functions that run on the host.
    """
    with module.context, ir.Location.unknown():
        assignment = DeviceAssignment(module)
        DeviceMain(assignment, num_threads, functions_of_host(module)).write()
        erase(assignment.main)
        for view in list(module.body.operations):
            if KIND in view.operation.attributes or COMBINER in view.operation.attributes:
                erase(view.operation)
