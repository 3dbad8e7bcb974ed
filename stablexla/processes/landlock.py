"""Landlock: a process gives up all files but some, which it may read, and all of the network; for good.

The kernel has it from 5.13 on, where it is turned on; the network from 6.7 on. It holds for the thread that asks for it
and for those that it starts afterwards.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on all machines
_VERSION, _BENEATH = 1, 1
_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights on files each version knows; 16 from the fifth on."""
_OF_NETWORK, _OF_SCOPES = 4, 6
"""The versions from which on TCP, and signals and abstract sockets, are among the rights."""


def confine(readable: Iterable[str]) -> list[str]:
    """Give up everything but reading below some paths; return what holds from now on.

    The process must have given up new privileges.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(_CREATE, None, 0, _VERSION)
    if version < 1:
        return []
    rights = (1 << _RIGHTS.get(version, 16)) - 1
    network = 3 if version >= _OF_NETWORK else 0
    attributes = struct.pack("<QQQ", rights, network, 3)
    size = 8 if version < _OF_NETWORK else 16 if version < _OF_SCOPES else 24
    rules: int = libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0)
    if rules < 0:
        return []
    try:
        for path in readable:
            _allow(libc, rules, path)
        if libc.syscall(_RESTRICT, rules, 0) != 0:
            return []
    finally:
        os.close(rules)
    return ["landlock", *(["landlock network"] if network else [])]


def _allow(libc: ctypes.CDLL, rules: int, path: str) -> None:
    """Let a file be read, or all files below a folder; one that is not there is left out."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = _READ_FILE | (_READ_FOLDER if os.path.isdir(path) else 0)
        libc.syscall(_ADD, rules, _BENEATH, struct.pack("<Qi", rights, place), 0)
    finally:
        os.close(place)
