"""Donated JAX arrays: they are deleted, and what stablexla gave out once may be written over when nobody reads it.

Memory that JAX took itself is never written to. Of the memory of a result JAX holds the numpy array: as long as a
computation of JAX reads it, or a view of it is about, JAX does not let that go, even when its own array is deleted.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

from stablexla.interop.jax.arrays import Array
from stablexla.interop.jax.required import internals

_given_out: dict[int, weakref.ref[Array]] = {}

# What holds an array that nobody else holds: a name here, and the argument of getrefcount.
_ALONE = 2


def note(array: Array) -> None:
    """Remembers a result that JAX gets, and that may come back as a donated argument."""
    address = array.ctypes.data

    def forget(gone: weakref.ref[Array]) -> None:
        if _given_out.get(address) is gone:
            del _given_out[address]

    _given_out[address] = weakref.ref(array, forget)


def give_up(leaf: Any) -> tuple[Any, bool]:
    """Deletes a JAX array; gives its elements, and whether nobody minds what is written where they lie.

    Raises:
        RuntimeError: the array is deleted already; it is JAX's error.
    """
    if type(leaf) is not internals().Array:
        return leaf, False
    found = _given_out.get(leaf.unsafe_buffer_pointer())
    array = None if found is None else found()
    if array is None:
        array = np.asarray(leaf)
        leaf.delete()
        return array, True  # read-only: it is not written to
    leaf.delete()
    internals().collect_garbage()
    return array, sys.getrefcount(array) == _ALONE
