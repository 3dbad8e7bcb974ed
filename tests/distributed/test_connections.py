"""How processes find one another over TCP: who is let in, and what is said where somebody does not come."""

from __future__ import annotations

import json
import socket
import struct
import threading
from typing import Any

import pytest

import stablexla as sx
from stablexla.targets.runtime.connections import listen, meet

HOST = "127.0.0.1"


def meeting(secrets: list[str], seconds: float = 20.0, before: Any = None) -> list[Any]:
    """What each process has of the others: descriptors and places, or its error."""
    listener = listen(HOST)
    address = listener.getsockname()[:2]
    found: list[Any] = [None] * len(secrets)

    def one(rank: int) -> None:
        try:
            given = listener if rank == 0 else None
            found[rank] = meet(rank, len(secrets), address, secrets[rank], seconds, given)
        except sx.StablexlaError as error:
            found[rank] = str(error)

    if before is not None:
        before(address)
    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(secrets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_each_has_a_connection_to_every_other() -> None:
    """Everybody says its number to everybody."""
    found = meeting(["s"] * 4)
    sockets = [[None if fd < 0 else socket.socket(fileno=fd) for fd in descriptors] for descriptors, _ in found]
    assert [[i for i, each in enumerate(row) if each is None] for row in sockets] == [[0], [1], [2], [3]]
    for rank, row in enumerate(sockets):
        for each in filter(None, row):
            each.settimeout(10)
            each.sendall(bytes([rank]))
    for row in sockets:
        for rank, each in enumerate(row):
            if each is not None:
                assert each.recv(1) == bytes([rank])
                each.close()
    assert len({json.dumps(places) for _, places in found}) == 1


def test_strangers_are_not_let_in() -> None:
    """Somebody without the secret, and somebody who says nonsense; the others meet all the same."""
    strangers = []

    def come(address: tuple[str, int]) -> None:
        guess = b'{"nonce": ""}', json.dumps({"rank": 1, "size": 2, "proof": "guessed"}).encode()
        for said in (guess, (b"\xff" * 5,), (b"[" * 100000,), (b"3", b"4")):
            strangers.append(socket.create_connection(address, timeout=10))
            for each in said:
                strangers[-1].sendall(struct.pack("<I", len(each)) + each)

    found = meeting(["s", "s"], before=come)
    for stranger in strangers:
        stranger.settimeout(10)
        assert b"addresses" not in _all(stranger)
        stranger.close()
    for descriptors, _ in found:
        socket.socket(fileno=max(descriptors)).close()


def _all(stranger: socket.socket) -> bytes:
    """What somebody is told until the connection ends."""
    found = b""
    try:
        while part := stranger.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_another_secret() -> None:
    first, second = meeting(["s", "t"], seconds=1.0)
    assert first.startswith("process 1 did not come within the time limit")
    assert second.startswith("process 0 does not know the secret")
    assert "do all processes know the same secret?" in second


def test_who_took_the_address_learns_nothing() -> None:
    """Somebody listens in the place of process 0: the secret is not said, and nobody joins."""
    secret, heard = "a secret of some length", list[bytes]()

    def pretend(taken: socket.socket) -> None:
        made, _ = taken.accept()
        with made:
            made.settimeout(10)
            said = json.dumps({"nonce": "00", "proof": "00"}).encode()
            made.sendall(struct.pack("<I", len(said)) + said)
            heard.append(_all(made))

    with listen(HOST) as taken:
        thread = threading.Thread(target=pretend, args=(taken,))
        thread.start()
        with pytest.raises(sx.StablexlaError, match="process 0 does not know the secret"):
            meet(1, 2, taken.getsockname()[:2], secret, 10, None)
        thread.join()
    assert b"nonce" in heard[0]
    assert secret.encode() not in heard[0]


@pytest.mark.parametrize(
    ("coordinator", "size", "rank", "said"),
    [
        ("nowhere", 2, 0, "'nowhere' is no address of a process"),
        ("127.0.0.1:1", 2, 2, "process 2 of 2 cannot be"),
        ("127.0.0.1:1", None, None, "process None of None cannot be"),
    ],
)
def test_arguments(coordinator: str, size: int | None, rank: int | None, said: str) -> None:
    from stablexla.distributed import _checked

    with pytest.raises(sx.StablexlaError, match=said):
        _checked(coordinator, size, rank)


def test_an_address_that_is_taken() -> None:
    with listen(HOST) as first, pytest.raises(sx.StablexlaError, match=r"no process can be reached at 127\.0\.0\.1:"):
        listen(HOST, first.getsockname()[1])
