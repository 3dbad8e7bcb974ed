"""The process that compiles for `libstablexla_pjrt.so`: programs come in, saved programs or errors go out."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from stablexla.compiling.custom_calls import handlers_elsewhere
from stablexla.pjrt import compiling
from stablexla.pjrt.table import failure_of, stablehlo_versions
from stablexla.processes import wire
from stablexla.processes.serving import answer_all, connect
from stablexla.processes.wire import Message

_OF_THE_HOST = 5
"""The first descriptor that this process was given by mistake."""


def main() -> None:
    """Serve the library at the other end of a socket until that is closed."""
    link = connect()
    os.closerange(_OF_THE_HOST, os.sysconf("SC_OPEN_MAX"))
    answer_all(link, partial(answer, link))


def answer(link: socket.socket, request: Message) -> None:
    """Answer a question of `pjrt_worker.cpp`; an error is its code and message."""
    ends = list(accumulate(request.values["sizes"]))
    *parts, names = (request.data[end - size : end] for end, size in zip(ends, request.values["sizes"], strict=True))
    try:
        with handlers_elsewhere(names.decode().splitlines()):
            values, data = _ANSWERS[request.values["what"]](parts, request.values["number"])
    except Exception as error:
        code, message = failure_of(error)
        wire.send(link, wire.ERROR, {"code": code, "message": message})
    else:
        wire.send(link, wire.DONE, values, data)


Answer = tuple[Mapping[str, Any], bytes]


def _compiled(parts: Sequence[bytes], devices: int) -> Answer:
    code, form, options = parts
    return {}, compiling.saved(*compiling.compiled_for_others(code, form.decode(), options, devices))


def _costs(parts: Sequence[bytes], _: int) -> Answer:
    return {"costs": dict(compiling.costs(compiling.loaded_for_others(parts[0])))}, b""


def _partitioned(parts: Sequence[bytes], _: int) -> Answer:
    return {}, compiling.partitioned(compiling.loaded_for_others(parts[0]))


def _versions(_: Sequence[bytes], __: int) -> Answer:
    current, minimum = stablehlo_versions()
    return {"current": current, "minimum": minimum}, b""


_ANSWERS = {"compiled": _compiled, "costs": _costs, "partitioned": _partitioned, "versions": _versions}
