"""The protocol between two processes: messages of a kind, plain values and bytes; errors as plain values.

Nothing here imports an MLIR, and nothing is unpickled: the other process may have read harmful bytes.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
from collections.abc import Mapping
from time import monotonic
from typing import Any

from stablexla.dialects import errors
from stablexla.dialects.errors import CompileError, SourceLine, StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass

_HEAD = struct.Struct("<8sQQ")
_CHUNK = 1 << 20
_SHORTEST, _LONGEST = 0.001, 1_000_000  # seconds; 0 would not take what is there

# Kinds of messages
READY, ASK, STAGE, PASS, DONE, ERROR = "ready", "ask", "stage", "pass", "done", "error"


class Closed(Exception):
    """The other side has closed the connection."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        kind: its kind.
        values: plain values.
        data: bytes.
    """

    kind: str
    values: Mapping[str, Any]
    data: bytes = b""


def send(
    link: socket.socket, kind: str, values: Mapping[str, Any], data: bytes = b"", until: float | None = None
) -> None:
    """Send a message.

    Raises:
        Closed: the connection is closed.
        TimeoutError: it was not taken until that time of `monotonic`.
    """
    text = json.dumps(values).encode()
    try:
        for part in (_HEAD.pack(kind.encode(), len(text), len(data)) + text, data):
            _limit(link, until)
            link.sendall(part)
    except (BrokenPipeError, ConnectionResetError):
        raise Closed from None


def receive(link: socket.socket, until: float | None = None) -> Message:
    """Receive the next message.

    Args:
        until: a time of `monotonic`.

    Raises:
        Closed: there will be none.
        TimeoutError: there was none until that time.
        ValueError: what came is no message.
    """
    kind, text_size, data_size = _HEAD.unpack(_exactly(link, _HEAD.size, until))
    text = _exactly(link, text_size, until)
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("values that are nested too deep") from None
    if not isinstance(values, dict):
        raise ValueError("a message without values")
    return Message(kind.rstrip(b"\0").decode(), values, _exactly(link, data_size, until))


def _exactly(link: socket.socket, size: int, until: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        _limit(link, until)
        try:
            part = link.recv(min(size - len(data), _CHUNK))
        except ConnectionResetError:
            raise Closed from None
        if not part:
            raise Closed
        data += part
    return bytes(data)


def _limit(link: socket.socket, until: float | None) -> None:
    """Let the next operation on the socket raise TimeoutError at that time."""
    link.settimeout(None if until is None else min(max(_SHORTEST, until - monotonic()), _LONGEST))


# ---- errors ----------------------------------------------------------------------------------------------------------


def values_of(error: BaseException) -> dict[str, Any]:
    """Return an error as plain values; one of another package becomes a CompileError there."""
    if not isinstance(error, StablexlaError):
        return {"class": "", "message": f"{type(error).__name__}: {error}", "fields": {}}
    fields = {name: _plain(value) for name, value in vars(error).items() if not name.startswith("_")}
    return {"class": type(error).__name__, "message": str(error.args[0]) if error.args else "", "fields": fields}


def error_of(values: Mapping[str, Any]) -> StablexlaError:
    """Rebuild the error, of its class, with its message and fields."""
    class_ = getattr(errors, values["class"], None) if values["class"] else None
    if not (isinstance(class_, type) and issubclass(class_, StablexlaError)):
        return CompileError(str(values["message"]))
    error = class_.__new__(class_)
    Exception.__init__(error, values["message"])
    for name, value in values["fields"].items():
        if not name.isidentifier() or name.startswith("_"):
            continue  # no field of an error
        setattr(error, name, _restored(value))
    return error


def _plain(value: Any) -> Any:
    if isinstance(value, SourceLine):
        return {"source line": dataclasses.asdict(value)}
    if isinstance(value, Mapping):
        return {"mapping": {str(key): _plain(each) for key, each in value.items()}}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_restored, value))
    if isinstance(value, dict):
        if "source line" in value:
            return SourceLine(**value["source line"])
        return {key: _restored(each) for key, each in value["mapping"].items()}
    return value
