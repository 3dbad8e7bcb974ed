"""The executable's methods for devices: running on all, timeouts, infeed, outfeed and channels.

The implementation is in `devices.py`, and for the queues in `targets/runtime/host.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError, OutOfMemoryError
from stablexla.executable.devices import Devices, rank
from stablexla.executable.running import Running, checked_limit, limits
from stablexla.targets.runtime import ArraySpec
from stablexla.targets.runtime.host import Host
from stablexla.targets.runtime.queues import Item
from stablexla.targets.signature.array_sharding import ArraySharding, Shardings

Array = npt.NDArray[Any]


class OnDevices(ABC):
    """The mixin of `Executable` for devices. Their numbers are replica * num_partitions + partition."""

    target: str
    """The target that it was compiled for."""
    num_replicas: int
    """How many replicas run the program."""
    num_partitions: int
    """How many partitions each of them has."""
    _devices: Devices
    _shardings: Shardings | None = None
    _host: Host

    @property
    @abstractmethod
    def name(self) -> str:
        """The program's name."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[ArraySpec, ...]:
        """The dtype, shape and name of each argument array."""

    @abstractmethod
    def execute(
        self, arguments: Sequence[object], *, donate: bool = False, time_limit: float | None = None
    ) -> list[Array]:
        """Run the program on one device."""

    @abstractmethod
    def _located(self, error: OutOfMemoryError) -> OutOfMemoryError:
        """Return the error with the user's line, where that can be found."""

    @property
    def num_devices(self) -> int:
        """The number of devices that run the program together: replicas times partitions."""
        return self.num_replicas * self.num_partitions

    @property
    def local_devices(self) -> tuple[int, ...]:
        """The devices of this process: all, unless `stablexla.distributed` made it one of several processes.

        >>> b = sx.XlaBuilder("sum")
        >>> total = b.build(sx.all_reduce(b.parameter(0, sx.f32[2]), sx.add))
        >>> sx.compile(total, num_replicas=2, num_partitions=2).local_devices
        (0, 1, 2, 3)

        Raises:
            ExecutionError: the processes cannot have equally many.
        """
        return tuple(device for device, process in enumerate(self.processes) if process == rank())

    @property
    def processes(self) -> tuple[int, ...]:
        """The process of each device, by rank: equal shares in the order of ranks, unless it is set.

        Any list will do, the same in all processes that it names: some of them, in any order, one of them more often
        than another. Only these run the program; they make a communicator for it, which other programs in the same
        processes share. Runs in different processes do not wait for each other.

        >>> b = sx.XlaBuilder("sum")
        >>> total = sx.compile(b.build(sx.all_reduce(b.parameter(0, sx.f32[2]), sx.add)), num_replicas=2)
        >>> total.processes
        (0, 0)
        >>> total.processes = [0, 1]
        Traceback (most recent call last):
        stablexla.dialects.errors.ExecutionError: sum: processes=[0, 1]: one for each of 2 devices, from 0 to 0
          try: mpiexec -n N, and stablexla.distributed.initialize() before

        Raises:
            ExecutionError: when it is set: not one process for each device, no such process, a program for one device,
                or one whose collectives are calls of MPI; when it is read: the processes cannot have equally many.
        """
        return self._devices.processes

    @processes.setter
    def processes(self, ranks: Sequence[int]) -> None:
        self._devices.place(ranks)

    def start(self, arguments: Sequence[object], *, donate: bool = False, time_limit: float | None = None) -> Running:
        """Run the program in a thread of its own: `.result()` waits for it, `.cancel()` ends it.

        Args:
            arguments, donate, time_limit: as in `execute`. Arrays are not copied: leave them alone until it is done.

        >>> b = sx.XlaBuilder("square")
        >>> x = b.parameter(0, sx.f32[2])
        >>> run = sx.compile(b.build(x * x)).start([np.array([2, 3], np.float32)])
        >>> run.result(), run.done()
        ([array([4., 9.], dtype=float32)], True)
        """
        return Running(self.name, lambda: self.execute(arguments, donate=donate), time_limit, self.target)

    @overload
    def execute_replicated(
        self,
        arguments: Sequence[Sequence[object] | None],
        *,
        gather: Literal[True] = True,
        donate: bool = False,
        time_limit: float | None = None,
    ) -> list[list[Array]]: ...
    @overload
    def execute_replicated(
        self,
        arguments: Sequence[Sequence[object] | None],
        *,
        gather: bool,
        donate: bool = False,
        time_limit: float | None = None,
    ) -> list[list[Array] | None]: ...
    def execute_replicated(
        self,
        arguments: Sequence[Sequence[object] | None],
        *,
        gather: bool = True,
        donate: bool = False,
        time_limit: float | None = None,
    ) -> Any:
        """Run the program on all devices at the same time.

        There may be more devices than processors. The GIL is released while they run. Where one device fails, the
        others are stopped, and the first error is raised; the next call works.

        Args:
            arguments: the arguments of each device, as `execute` takes them. Those of devices in other processes are
                not looked at, and may be None.
            gather: with several processes, gives the results of all devices in every process.
            donate: as in `execute`, on every device.
            time_limit: as in `execute`, of the devices of this process; those of others end with them.

        Returns:
            The results of each device, lists of arrays; with `gather=False` None for devices of other processes.

        Raises:
            ExecutionError: another number of devices than the program was compiled for; arguments that do not fit; or
                the failure of a device.
            CollectiveError: devices waited for others that did not come within `collective_timeout`, or cannot come.

        >>> b = sx.XlaBuilder("sum")
        >>> total = sx.compile(b.build(sx.all_reduce(b.parameter(0, sx.f32[2]), sx.add)), num_replicas=2)
        >>> total.execute_replicated([[np.array([1, 2], np.float32)], [np.array([10, 20], np.float32)]])
        [[array([11., 22.], dtype=float32)], [array([11., 22.], dtype=float32)]]
        """
        if len(arguments) == 1 == self._devices.count and arguments[0] is not None:
            return [self.execute(arguments[0], donate=donate, time_limit=time_limit)]
        try:
            with limits(time_limit, self.target):
                return self._devices.execute_replicated(arguments, gather, donate)
        except OutOfMemoryError as error:
            raise self._located(error) from None

    @property
    def input_shardings(self) -> tuple[ArraySharding, ...] | None:
        """The sharding of each argument, if the program has shardings; calls take whole arrays then.

        >>> text = '''module attributes {mhlo.num_partitions = 2 : i32} {
        ...   sdy.mesh @mesh = <["x"=2]>
        ...   func.func @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
        ...     %0 = stablehlo.negate %x : tensor<4xf32>
        ...     return %0 : tensor<4xf32>
        ...   }
        ... }'''
        >>> negated = sx.compile(text)
        >>> negated.input_shardings[0].parts
        (((0, 2),), ((2, 4),))
        >>> negated(np.arange(4, dtype=np.float32))
        array([-0., -1., -2., -3.], dtype=float32)
        """
        return None if self._shardings is None else self._shardings[0]

    @property
    def output_shardings(self) -> tuple[ArraySharding, ...] | None:
        """The sharding of each result, as `input_shardings`."""
        return None if self._shardings is None else self._shardings[1]

    @property
    def collective_timeout(self) -> float | None:
        """Timeout in seconds of a device in a collective or a `recv`; None is no limit.

        A device that can see a deadlock does not wait.
        """
        return self._devices.time_limit

    @collective_timeout.setter
    def collective_timeout(self, seconds: float | None) -> None:
        self._devices.time_limit = checked_limit(seconds, "collective_timeout")

    # ---- queues ----------------------------------------------------------------------------------------------------

    @property
    def transfer_timeout(self) -> float | None:
        """Timeout in seconds for an empty queue, for the program and the caller; None is no limit."""
        return self._host.time_limit

    @transfer_timeout.setter
    def transfer_timeout(self, seconds: float | None) -> None:
        self._host.time_limit = seconds

    def transfer_to_infeed(self, value: object, device: int = 0) -> None:
        """Put one item into the infeed of a device, for an `infeed` of the program.

        Args:
            value: an array or a tuple of them, of a shape that the program reads; it is copied.
            device: the device's number.

        Raises:
            ExecutionError: a value of no such shape, a program without infeed, or no such device in this process.

        >>> b = sx.XlaBuilder("double")
        >>> double = sx.compile(b.build(b.infeed(sx.f32[2]) * 2))
        >>> double.transfer_to_infeed(np.array([1, 2], np.float32))
        >>> double()
        array([2., 4.], dtype=float32)
        """
        self._host.put(value, device=self._checked(device))

    def transfer_from_outfeed(self, device: int = 0) -> Any:
        """Take the next item from the outfeed of a device; wait for it, at most `transfer_timeout`.

        Returns:
            An array, or a tuple of them, as the program's `outfeed` was given it.

        Raises:
            ExecutionError: nothing came in time, a program without outfeed, or no such device in this process.
        """
        return one_or_all(self._host.get(device=self._checked(device)))

    def transfer_to_channel(self, channel_handle: int, value: object, device: int = 0) -> None:
        """`transfer_to_infeed` for a channel that the program receives from by `sx.recv_from_host`."""
        self._host.put(value, channel_handle, self._checked(device))

    def transfer_from_channel(self, channel_handle: int, device: int = 0) -> Any:
        """`transfer_from_outfeed` for a channel that the program sends on by `sx.send_to_host`."""
        return one_or_all(self._host.get(channel_handle, self._checked(device)))

    def _checked(self, device: int) -> int:
        """Return the number of a device of this process."""
        is_number = isinstance(device, int) and not isinstance(device, bool)
        if not is_number or not 0 <= device < self.num_devices:
            raise ExecutionError(f"{self.name}: there is no device {device!r}; it runs on {self.num_devices}")
        local = self.local_devices
        if device not in local:
            here = ", ".join(map(str, local)) or "none"
            raise ExecutionError(f"{self.name}: device {device} is in another process; this one has {here}")
        return device


def one_or_all(item: Item) -> Any:
    """Return one array by itself, several as a tuple."""
    return item[0] if len(item) == 1 else item
