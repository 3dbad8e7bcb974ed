"""Runs a compiled function on all devices of this process at the same time.

A device is a number: replica * num_partitions + partition. Several processes have equal shares, in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakMethod

import numpy.typing as npt

from stablexla.builder.tuple_tree import TupleTree
from stablexla.dialects.errors import ExecutionError
from stablexla.executable.process_exchange import Exchange
from stablexla.targets.runtime._runtime import CompiledFunction, GpuFunction
from stablexla.targets.runtime.bounded import BoundedFunction
from stablexla.targets.signature.interface import Signature

Array = npt.NDArray[Any]
Leaves = Callable[[Sequence[object]], Sequence[object]]
Arguments = list[Sequence[object]]

TIME_LIMIT = 60.0
"""Seconds that a device waits for others, unless the executable says otherwise."""


def local_devices(count: int) -> range:
    """Return this process's share of `count` devices: all, unless the program runs in several processes.

    Raises:
        ExecutionError: the processes cannot have equally many.
    """
    distributed = _distributed()
    if count == 1 or distributed is None:
        return range(count)
    mine: range = distributed.local_devices(count)
    return mine


def _distributed() -> Any:
    """Return the module for several processes, if it was used; it is not imported to find out."""
    module = sys.modules.get("stablexla.distributed")
    return module if module is not None and module.is_initialized() else None


class Devices:
    """The devices of one executable.

    Attributes:
        count: how many there are, in all processes.
        time_limit: timeout in seconds of a device in a collective; None is no limit.
    """

    def __init__(
        self,
        function: CompiledFunction | GpuFunction,
        signature: Signature,
        tree: TupleTree | None,
        digest: Callable[[], bytes],
    ) -> None:
        """Make the devices of a function; collectives of several processes compare the `digest` of its program."""
        self._function, self._name, self._tree = function, signature.name, tree
        self._digest = WeakMethod(digest)  # of the executable, which would else live until the garbage is collected
        self.replicas, self.partitions = signature.num_replicas, signature.num_partitions
        self.count = signature.num_devices
        self.time_limit: float | None = TIME_LIMIT
        self._is_prepared = False  # for many processes
        self._local: range | None = None
        dynamic = signature.dynamic_parameters, signature.dynamic_results
        self._bounded = None if signature.is_static else BoundedFunction(function, *dynamic)

    @property
    def local(self) -> range:
        """The devices of this process."""
        if self._local is None:
            local = local_devices(self.count)
            if _distributed() is None:  # which may still change
                return local
            self._local = local
        return self._local

    def execute(self, leaves: Sequence[object], donate: bool = False) -> list[Array]:
        """Run the only device of this process.

        Raises:
            ExecutionError: it has several; arguments that do not fit; and as `execute_replicated`.
        """
        local = self.local
        if len(local) != 1:
            raise ExecutionError(
                f"{self._name}: the program runs on {self.count} devices, {len(local)} of them in this process",
                hint="executable.execute_replicated([arguments of device 0, arguments of device 1, ...])",
            )
        (made,) = self._run(lambda: [leaves], local, donate)
        return made

    def execute_replicated(
        self, arguments: Sequence[Sequence[object] | None], gather: bool, donate: bool
    ) -> list[list[Array]]:
        """Like `Executable.execute_replicated`."""
        if len(arguments) != self.count:
            devices = f"{self.count} device{'s' * (self.count > 1)}"
            raise ExecutionError(
                f"{self._name}: runs on {devices}, but arguments for {len(arguments)} came",
                hint="a list with one list of arguments for each device",
            )
        local = self.local
        own = arguments if len(local) == self.count else arguments[local.start : local.stop]
        made = self._run(lambda: [self._leaves(a, local.start + i) for i, a in enumerate(own)], local, donate)
        if len(local) == self.count:
            return made
        if gather:
            return self._exchange(local).gather(made, dynamic=self._bounded is not None)
        rest: list[Any] = [None] * self.count
        rest[local.start : local.stop] = made
        return rest

    def _run(self, arguments: Callable[[], Arguments], local: range, donate: bool) -> list[list[Array]]:
        if not self._is_prepared and len(local) != self.count:
            if isinstance(self._function, CompiledFunction) and self._function.collectives:
                digest = self._digest()
                assert digest is not None  # the executable runs
                self._function.source = int.from_bytes(digest()[:8])
            self._exchange(local).prepare(self._function.collectives)
            self._is_prepared = True
        given = self._fitting(arguments, local)
        if self._bounded is None:
            return self._function.execute_replicated(given, local.start, donate, self.time_limit)
        made = self._function.execute_replicated(given, local.start, False, self.time_limit)
        return [self._bounded.cut(each) for each in made]

    def _exchange(self, local: range) -> Exchange:
        return Exchange(_distributed().initialize(), len(local), self.time_limit)

    def _fitting(self, arguments: Callable[[], Arguments], local: range) -> Arguments:
        """Return the function's arguments. If they do not fit, tell the other processes that no run begins."""
        try:
            given = arguments()
            if self._bounded is None:
                return given
            return [self._named(d, self._bounded.in_bounds, own) for d, own in zip(local, given, strict=True)]
        except ExecutionError as error:
            self._function.refuse(error.summary, len(local))
            raise

    def _leaves(self, arguments: Sequence[object] | None, device: int) -> Sequence[object]:
        """Return the arguments of a device as arrays, the leaves of tuples."""
        if type(arguments) is not list and (not isinstance(arguments, Sequence) or isinstance(arguments, str)):
            raise ExecutionError(
                f"{self._name}: device {device} takes a list of arguments, but a {type(arguments).__name__} came",
                hint="[[x], [y]] for two devices with one argument each",
            )
        return arguments if self._tree is None else self._named(device, self._tree.arguments, arguments)

    def _named(self, device: int, leaves: Leaves, arguments: Sequence[object]) -> Sequence[object]:
        """Apply a function to a device's arguments; its errors name the device."""
        try:
            return leaves(arguments)
        except ExecutionError as error:
            what = error.summary.removeprefix(f"{self._name}: ")
            raise ExecutionError(f"{self._name}: device {device}: {what}", hint=error.hint) from None

    def __str__(self) -> str:
        return several(self.replicas, self.partitions)


def several(replicas: int, partitions: int) -> str:
    """Return the suffix on several devices for an argument error; "" for one."""
    return f", num_replicas={replicas}, num_partitions={partitions}" if replicas * partitions > 1 else ""
