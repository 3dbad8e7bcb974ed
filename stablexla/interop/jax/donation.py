"""Donated JAX arrays: they are deleted, and memory of stablexla's earlier results is reused if it has no other user.

Memory that JAX allocated is never reused. JAX holds the numpy array of a result: it keeps that alive while a
computation of JAX reads it or a view of it exists, even when its own array is deleted.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

from stablexla.interop.jax.arrays import Array, base_of_keys, is_key
from stablexla.interop.jax.required import internals
from stablexla.targets.runtime._runtime import is_shared_block


def _references_of_one_name() -> int:
    """Return what getrefcount says of an object that only a local name holds."""
    alone = object()
    return sys.getrefcount(alone)


# The argument of getrefcount counts, too, or not, by the version of Python.
_ALONE = _references_of_one_name()


class _Result(weakref.ref[Array]):
    """A result that JAX holds, and its address."""

    __slots__ = ("address",)
    address: int


_given_out: dict[int, _Result] = {}


def _forget(gone: weakref.ref[Array]) -> None:
    assert isinstance(gone, _Result)
    if _given_out.get(gone.address) is gone:
        del _given_out[gone.address]


def remember_result(made: Any, array: Array) -> None:
    """Remember a result and the caller's view of it, which may come back as a donated argument."""
    if is_key(made):
        made = base_of_keys(made)
    result = _Result(array, _forget)
    result.address = made.unsafe_buffer_pointer() if type(made) is internals().Array else array.ctypes.data
    _given_out[result.address] = result


def donate(leaf: Any) -> tuple[Any, bool]:
    """Delete a JAX array; return its elements, and whether their memory may be overwritten.

    Raises:
        RuntimeError: the array is deleted already; it is JAX's error.
    """
    if is_key(leaf):
        leaf = base_of_keys(leaf)
    if type(leaf) is not internals().Array:
        return leaf, False
    found = _given_out.get(leaf.unsafe_buffer_pointer())
    array = None if found is None else found()
    if array is None:
        array = np.asarray(leaf)
        leaf.delete()
        # JAX's own memory is read-only and not written to. Ours, under an array that somebody made of a result himself,
        # would be, and that result may still be held.
        return array, not is_shared_block(array.ctypes.data)
    leaf.delete()
    internals().collect_garbage()
    is_alone = sys.getrefcount(array) == _ALONE  # not inside the tuple, which would hold the array already
    return array, is_alone
