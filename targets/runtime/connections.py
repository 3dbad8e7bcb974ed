"""TCP connections between the processes of a program, one for each two of them.

Process 0 listens at an address that all know. The others tell it where they listen, and get the addresses of all; of
two processes the one of the higher number connects to the other. Both prove that they know the secret, which neither
says: a stranger who took the address learns nothing.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import socket
import struct
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from stablexla.dialects.errors import StablexlaError

_LENGTH = struct.Struct("<I")
_LONGEST = 1 << 20
_STRANGER = 5.0
"""Seconds that somebody who connects has to say who it is."""


def listen(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at an address; port 0 is any that is free.

    Raises:
        StablexlaError: the address is taken, or not this machine's.
    """
    try:
        return socket.create_server((host, port), family=_family(host, port), backlog=1024)
    except OSError as error:
        raise StablexlaError(f"no process can be reached at {host}:{port}: {error.strerror or error}") from None


def address_towards(host: str, port: int) -> str:
    """Return the address of this machine on the way to another; nothing is sent."""
    with socket.socket(_family(host, port), socket.SOCK_DGRAM) as way:
        way.connect((host, port))
        return str(way.getsockname()[0])


def meet(
    rank: int, size: int, coordinator: tuple[str, int], secret: str, seconds: float, listener: socket.socket | None
) -> tuple[list[int], list[Any]]:
    """Connect to all other processes.

    Args:
        coordinator: where process 0 listens.
        seconds: how long to wait for the others.
        listener: of process 0.

    Returns:
        The connected sockets' file descriptors by rank, -1 for this process; and what `place` says in each process.

    Raises:
        StablexlaError: some did not come, or did not know the secret.
    """
    table = _Table(rank, size, secret, time.monotonic() + seconds)
    try:
        if rank == 0:
            assert listener is not None
            table.gather(listener)
        else:
            table.join(coordinator)
        return table.descriptors(), table.places
    except BaseException:
        table.close()
        raise
    finally:
        if listener is not None:
            listener.close()


def place() -> list[int]:
    """Return this machine's boot, the process's PID namespace, and its number in that."""
    boot = int(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:15], 16)
    return [boot, os.stat("/proc/self/ns/pid").st_ino, os.getpid()]


class _Table:
    """The connections of one process, while they are made."""

    def __init__(self, rank: int, size: int, secret: str, deadline: float) -> None:
        self._rank, self._size, self._secret, self._deadline = rank, size, secret, deadline
        self._sockets: dict[int, socket.socket] = {}
        self.places: list[Any] = [None] * size

    def gather(self, listener: socket.socket) -> None:
        """As process 0: wait for all, and tell them of each other."""
        found = {each["rank"]: each for each in self._accept(listener, set(range(1, self._size)))}
        self.places = [place(), *(found[rank]["place"] for rank in range(1, self._size))]
        hosts = {rank: self._sockets[rank].getpeername()[0] for rank in found}
        addresses = [None, *([hosts[rank], found[rank]["port"]] for rank in range(1, self._size))]
        for each in self._sockets.values():
            self._send(each, {"addresses": addresses, "places": self.places})

    def join(self, coordinator: tuple[str, int]) -> None:
        """As another process: tell process 0, and connect to the others."""
        with listen(address_towards(*coordinator)) as listener:
            first = self._connect(coordinator, 0)
            self._introduce(first, "process 0", {"port": listener.getsockname()[1], "place": place()})
            told = self._read(first, "process 0")
            self.places = told["places"]
            for rank in range(1, self._rank):
                self._introduce(self._connect(tuple(told["addresses"][rank]), rank), f"process {rank}", {})
            self._accept(listener, set(range(self._rank + 1, self._size)))

    def descriptors(self) -> list[int]:
        """Return the sockets' descriptors, which are the caller's from now on."""
        return [self._sockets[rank].detach() if rank in self._sockets else -1 for rank in range(self._size)]

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def _introduce(self, to: socket.socket, who: str, more: dict[str, Any]) -> None:
        """Say who this is to a process that knows the secret."""
        nonce = os.urandom(16).hex()
        self._send(to, {"nonce": nonce})
        said = self._read(to, who)
        theirs = str(said.get("nonce")) if isinstance(said, dict) else ""
        if not isinstance(said, dict) or not _equal(said.get("proof"), self._proof("listens", nonce, theirs)):
            raise StablexlaError(f"{who} does not know the secret", hint="do all processes know the same secret?")
        hello = {"rank": self._rank, "size": self._size, **more}
        self._send(to, hello | {"proof": self._proof("comes", nonce, theirs, hello)})

    def _introduced(self, made: socket.socket) -> dict[str, Any] | None:
        """Return what a process says that has connected; None for one that does not know the secret."""
        who, mine = "a process that connected", os.urandom(16).hex()
        first = self._read(made, who, _STRANGER)
        theirs = str(first.get("nonce")) if isinstance(first, dict) else ""
        self._send(made, {"nonce": mine, "proof": self._proof("listens", theirs, mine)})
        hello = self._read(made, who, _STRANGER)
        if not isinstance(hello, dict) or not _equal(
            hello.pop("proof", None), self._proof("comes", theirs, mine, hello)
        ):
            return None
        return hello

    def _proof(self, *what: object) -> str:
        """Return what only those can say of these values who know the secret."""
        return hmac.new(self._secret.encode(), json.dumps(what, sort_keys=True).encode(), sha256).hexdigest()

    def _accept(self, listener: socket.socket, wanted: set[int]) -> list[dict[str, Any]]:
        """Wait for connections of these processes; those of others are closed."""
        found: list[dict[str, Any]] = []
        while wanted:
            listener.settimeout(self._left(f"process {', '.join(map(str, sorted(wanted)))} did not come"))
            try:
                made, _ = listener.accept()
            except TimeoutError:
                continue
            try:
                hello = self._introduced(made)
            except (StablexlaError, OSError):
                hello = None
            if hello is None or hello.get("rank") not in wanted:
                made.close()
                continue
            self._sockets[hello["rank"]] = made
            if hello.get("size") != self._size:
                raise StablexlaError(f"process {hello['rank']} is one of {hello.get('size')}, and this of {self._size}")
            wanted.remove(hello["rank"])
            found.append(hello)
        return found

    def _connect(self, address: Any, rank: int) -> socket.socket:
        """Connect to a process, which may not listen yet."""
        while True:
            left = self._left(f"process {rank} is not at {address[0]}:{address[1]}")
            try:
                made = self._sockets[rank] = socket.create_connection(tuple(address), timeout=left)
                return made
            except OSError:
                time.sleep(min(0.05, left))

    def _left(self, what: str) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise StablexlaError(f"{what} within the time limit", hint="all processes must be started")
        return left

    def _send(self, to: socket.socket, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        to.settimeout(self._left("a process does not read what it is told"))
        to.sendall(_LENGTH.pack(len(text)) + text)

    def _read(self, given: socket.socket, who: str, seconds: float = math.inf) -> Any:
        try:
            (length,) = _LENGTH.unpack(self._exactly(given, _LENGTH.size, who, seconds))
            if length > _LONGEST:
                raise StablexlaError(f"{who} says something else than a process of stablexla would")
            return json.loads(self._exactly(given, length, who, seconds))
        except (OSError, ValueError, RecursionError) as error:
            raise StablexlaError(f"{who} does not answer: {error}") from None

    def _exactly(self, given: socket.socket, count: int, who: str, seconds: float) -> bytes:
        data = b""
        while len(data) < count:
            given.settimeout(min(seconds, self._left(f"{who} did not answer")))
            part = given.recv(count - len(data))
            if not part:
                raise StablexlaError(f"{who} has closed the connection", hint="do all processes know the same secret?")
            data += part
        return data


def _equal(said: object, wanted: str) -> bool:
    return hmac.compare_digest(str(said).encode(), wanted.encode())


def _family(host: str, port: int) -> socket.AddressFamily:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
