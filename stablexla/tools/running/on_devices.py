"""`stablexla-run` on several devices: inputs for each, and output of their results."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from stablexla.executable.executable import Executable
from stablexla.targets.signature.signature import Signature
from stablexla.tools.common import count, seconds
from stablexla.tools.running.inputs import load_inputs, make_inputs

Array = npt.NDArray[Any]
DEVICE = "{device}"
"""Stands for the device's number in inputs."""
HELP = """
several devices:
  A device is a number: replica * partitions + partition. All devices run the program at the same time. They get \
the same inputs, unless {device} stands in a SPEC or in the name of a file: it is replaced by the device's number.
  --launcher mpi starts a process for each device (or as many as --processes says) by mpiexec; it needs the extra [mpi].
"""
EXAMPLES = """\
  stablexla-run sum.mlir --replicas 4 --input 'x{device}.npy'
                                                            4 devices in this process, each with a file of its own
  stablexla-run sum.mlir --replicas 2 --partitions 2 --input='random:{device}' --launcher=mpi
                                                            4 devices in 4 processes
"""


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for several devices."""
    group = parser.add_argument_group("several devices")
    add = group.add_argument
    add("--replicas", type=count, metavar="R", help="how many replicas run it (default: what the program says, or 1)")
    add("--partitions", type=count, metavar="P", help="how many partitions each has (default: as --replicas)")
    add("--collective-timeout", type=seconds, metavar="S", help="how long a device waits for others (default: 60)")
    add("--launcher", choices=["mpi"], help="run the devices in processes of their own")
    add("--processes", type=count, metavar="N", help="how many processes (default: one for each device)")


def device_inputs(arguments: argparse.Namespace, signature: Signature, devices: int) -> list[list[Array]]:
    """Return the inputs of each device."""

    def of(device: int) -> list[Array]:
        if arguments.inputs:
            return load_inputs(Path(numbered(str(arguments.inputs), device)), signature)
        specs = [numbered(spec, device) for spec in arguments.input]
        return make_inputs(specs, signature, arguments.seed, strict=arguments.strict_inputs)

    return [of(device) for device in range(devices)]


def numbered(text: str, device: int) -> str:
    """Return the text for a device.

    >>> numbered("x{device}.npy", 3)
    'x3.npy'
    """
    return text.replace(DEVICE, str(device))


def runner(
    executable: Executable, inputs: Sequence[Sequence[Array]], time_limit: float | None
) -> Callable[[], list[list[Array]]]:
    """Return a call of the program on all its devices, with the results of each; seconds that it may take."""
    if len(inputs) == 1:
        return lambda: [executable.execute(inputs[0], time_limit=time_limit)]
    return lambda: executable.execute_replicated(inputs, time_limit=time_limit)
