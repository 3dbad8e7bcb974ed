"""The PJRT plugin as a shared library: its table in this process, with two devices."""

from __future__ import annotations

import ctypes
import functools
import os
from unittest import mock

from stablexla.pjrt.__main__ import library

LIBRARY = "STABLEXLA_TEST_PJRT_LIBRARY"
"""Names another library than the installed one: that which is built with a sanitizer."""


@functools.cache
def address_in_library() -> int:
    """Return the address of the table; it is made once in a process, by the environment as it is then."""
    with mock.patch.dict(os.environ, {"STABLEXLA_NUM_DEVICES": "2"}):
        get = ctypes.CDLL(os.environ.get(LIBRARY) or str(library())).GetPjrtApi
        get.restype = ctypes.c_void_p
        return int(get())
