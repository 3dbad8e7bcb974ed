"""Runs a compiled function on all devices of this process at the same time.

A device is a number: replica * num_partitions + partition. Several processes have equal shares, in order, unless the
executable says which process has each.
"""

from __future__ import annotations

import hashlib
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
from stablexla.targets.runtime.mpi_symbols import IMPLEMENTATION
from stablexla.targets.signature.interface import Signature

Array = npt.NDArray[Any]
Leaves = Callable[[Sequence[object]], Sequence[object]]
Arguments = Sequence[Sequence[object]]

TIME_LIMIT = 60.0
"""Seconds that a device waits for others, unless the executable says otherwise."""


def spread(name: str, count: int, processes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the process of each of `count` devices: those given, or equal shares in the order of ranks.

    Raises:
        ExecutionError: not one process for each device, no such process, or a number of devices that cannot be shared.
    """
    distributed = _distributed()
    size = 1 if distributed is None else distributed.process_count()
    if processes is None:
        if count == 1 or distributed is None:
            return (rank(),) * count
        share = len(distributed.local_devices(count))
        return tuple(device // share for device in range(count))
    given = tuple(processes)
    if count == 1 or len(given) != count or not all(type(p) is int and 0 <= p < size for p in given):
        rule = f"one for each of {count} devices, from 0 to {size - 1}"
        if count == 1:
            rule = "a program for one device runs in any process by itself"
        raise ExecutionError(
            f"{name}: processes={list(given)}: {rule}",
            hint="mpiexec -n N, and stablexla.distributed.initialize() before" if size == 1 else "",
        )
    return given


def rank() -> int:
    """Return the number of this process; 0 where there is one."""
    distributed = _distributed()
    return 0 if distributed is None else int(distributed.process_index())


def _distributed() -> Any:
    """Return the module for several processes, if it was used; it is not imported to find out."""
    module = sys.modules.get("stablexla.distributed")
    return module if module is not None and module.is_initialized() else None


class Devices:
    """The devices of one executable.

    Attributes:
        count: how many there are, in all processes.
        time_limit: timeout in seconds of a device in a collective; None is no limit.
        is_placed: whether `place` said which process has each.
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
        self.is_placed = False
        self._processes: tuple[int, ...] | None = None
        self._local: tuple[int, ...] | None = None
        dynamic = signature.dynamic_parameters, signature.dynamic_results
        self._bounded = None if signature.is_static else BoundedFunction(function, *dynamic)

    @property
    def processes(self) -> tuple[int, ...]:
        """The process of each device."""
        if self._processes is None:
            shares = spread(self._name, self.count, None)
            if _distributed() is None:  # which may still change
                return shares
            self._place(shares, 0)
        assert self._processes is not None
        return self._processes

    @property
    def local(self) -> tuple[int, ...]:
        """The devices of this process."""
        if self._local is None:
            return tuple(device for device, process in enumerate(self.processes) if process == rank())
        return self._local

    def place(self, processes: Sequence[int], devices: Sequence[int] = ()) -> None:
        """Give each device to a process; `devices` says which ones of these they are, where that matters.

        Raises:
            ExecutionError: as `spread`; or the program calls MPI by itself.
        """
        given = spread(self._name, self.count, processes)
        if given != tuple(range(self.count)) and any(IMPLEMENTATION in each for each in self._function.collectives):
            raise ExecutionError(
                f"{self._name}: processes={list(given)}: its collectives are calls of MPI, for device d in process d",
                hint="a pipeline without stablexla-collectives-to-mpi",
            )
        key = hashlib.sha256(repr((given, tuple(devices))).encode()).digest()
        self._place(given, int.from_bytes(key[:8]))
        self.is_placed = True

    def _place(self, processes: tuple[int, ...], key: int) -> None:
        if isinstance(self._function, CompiledFunction):
            self._function.place(processes, key)
        self._processes, self._local = processes, None
        self._local = self.local

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
        (made,) = self._run(lambda: [leaves], donate)
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
        made = self._run(lambda: [self._leaves(arguments[device], device) for device in local], donate)
        if len(local) == self.count:
            return made
        if gather:
            exchange = Exchange(self.processes, rank(), self.time_limit)
            return exchange.gather(made, dynamic=self._bounded is not None)
        rows: list[Any] = [None] * self.count
        for device, own in zip(local, made, strict=True):
            rows[device] = own
        return rows

    def run_here(self, arguments: Arguments) -> list[list[Array]]:
        """Run the devices of this process, given their arguments; return their results.

        Raises:
            ExecutionError: as `execute_replicated`.
        """
        return self._run(lambda: arguments, donate=False)

    def _run(self, arguments: Callable[[], Arguments], donate: bool) -> list[list[Array]]:
        local = self.local
        if not local:
            used = ", ".join(map(str, sorted(set(self.processes))))
            raise ExecutionError(
                f"{self._name}: process {rank()} has none of its devices; processes {used} have them",
                hint="call it in those alone, or executable.processes = [the process of each device]",
            )
        function = self._function
        is_whole = len(local) == self.count
        if not is_whole and isinstance(function, CompiledFunction) and function.collectives and not function.source:
            digest = self._digest()
            assert digest is not None  # the executable runs
            function.source = int.from_bytes(digest()[:8])
        given = self._fitting(arguments, local)
        if self._bounded is None:
            return function.execute_replicated(given, donate, self.time_limit)
        made = function.execute_replicated(given, False, self.time_limit)
        return [self._bounded.cut(each) for each in made]

    def _fitting(self, arguments: Callable[[], Arguments], local: Sequence[int]) -> Arguments:
        """Return the function's arguments. If they do not fit, tell the other processes that no run begins."""
        try:
            given = arguments()
            if self._bounded is None:
                return given
            return [self._named(d, self._bounded.in_bounds, own) for d, own in zip(local, given, strict=True)]
        except ExecutionError as error:
            self._function.refuse(error.summary)
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
