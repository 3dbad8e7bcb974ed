"""The process of a sandbox: it loads a saved program, and runs it on arrays in shared memory.

First it gives up files and network, then it imports what running takes, then it gives up most system calls, and reads
the program; before the program's code runs for the first time it gives up opening files as well.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from stablexla.dialects.errors import StablexlaError, UnsupportedError
from stablexla.processes import protections, seccomp, wire
from stablexla.processes.serving import answer_all, connect
from stablexla.processes.wire import Message

_WHILE_LOADING = 4
"""Bytes of memory for each of a program's: its file, its parts, and its constants."""


def main() -> None:
    """Serve the other end of a socket until that is closed."""
    given = json.loads(sys.argv[1])
    link = connect()
    held = protections.give_up_files()
    _import_all()
    held += protections.filter_calls(seccomp.compile_filter())
    try:
        protections.refuse_without([name for name in given["required"] if name not in (*held, "limits")])
        data = wire.receive(link).data
        held += protections.limit_resources(given["memory"] + _WHILE_LOADING * len(data))
        program = _Program(given, data)
    except Exception as error:
        wire.send(link, wire.ERROR, wire.values_of(error))
        return
    if "seccomp" in held:
        protections.filter_calls(seccomp.run_filter(int(sys.argv[-1])))
    wire.send(link, wire.READY, {"protections": held})
    answer_all(link, partial(_answer, link, program))


def _import_all() -> None:
    """Import what a run may need: no file can be opened later."""
    import traceback  # noqa: F401

    import ml_dtypes  # noqa: F401
    import numpy as np

    from stablexla.executable import saved  # noqa: F401
    from stablexla.targets.runtime import collective_errors, host, processor, stopped  # noqa: F401

    processor.features()
    np.zeros(1).copy()


class _Program:
    """The program of this process."""

    def __init__(self, given: Mapping[str, Any], data: bytes) -> None:
        from stablexla.processes.shared_arrays import SharedArrays
        from stablexla.targets.runtime import container, saved_code, set_num_threads
        from stablexla.targets.signature.interface import Signature

        file = container.parse(data, "the program")
        self._signature = signature = Signature.of_plain(file.description)
        parameters, results = signature.parameter_specs(), signature.result_specs()
        _refuse_c_functions(signature.name, file)
        set_num_threads(given["threads"])
        function = saved_code.restore(signature.name, parameters, results, file.description["function"], file.sections)
        self.function: Any = function
        self._room = SharedArrays(parameters, results, signature.num_devices, given["room"])

    def run(self, devices: int, time_limit: float | None) -> None:
        """Run it on the arguments in the shared memory, where the results go."""
        import numpy as np

        given = [self._room.arguments(device) for device in range(devices)]
        if self._signature.num_devices == 1:
            made = [self.function.execute(given[0])]
        else:
            made = self.function.execute_replicated(given, 0, False, time_limit)
        for device, own in enumerate(made):
            for target, result in zip(self._room.results(device), own, strict=True):
                np.copyto(target, result)


def _refuse_c_functions(name: str, file: Any) -> None:
    from itertools import accumulate

    from stablexla.dialects.custom_calls import C_FUNCTION
    from stablexla.targets.runtime import undefined_symbols

    sizes = file.description["function"]["code"]
    for end, size in zip(accumulate(sizes), sizes, strict=True):
        for symbol in undefined_symbols(bytes(file.sections["code"][end - size : end])):
            if symbol.startswith(C_FUNCTION):
                raise no_calls(name, f"the custom call {symbol.removeprefix(C_FUNCTION)!r}")


def no_calls(program: str, what: str) -> UnsupportedError:
    """Return the error for a program that calls functions of its user's."""
    return UnsupportedError(
        f"{program}: {what} cannot be had in a sandbox: the functions are in another process",
        hint="run it without a sandbox, if you trust it",
    )


def _answer(link: socket.socket, program: _Program, request: Message) -> None:
    try:
        if request.kind == wire.SEED:
            program.function.seed(int(request.values["number"]))
        else:
            program.run(int(request.values["devices"]), request.values["time_limit"])
    except MemoryError:
        wire.send(link, wire.ERROR, {"class": "ExecutionError", "message": "no memory is left", "fields": {}})
    except Exception as error:
        said = wire.values_of(error)
        if not isinstance(error, StablexlaError):
            said["class"] = "ExecutionError"
        wire.send(link, wire.ERROR, said)
    else:
        wire.send(link, wire.DONE, {})
