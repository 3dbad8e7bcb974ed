"""Errors of runs that were stopped: at a time limit, or by another thread."""

from __future__ import annotations

from typing import NoReturn

from stablexla.dialects.errors import ExecutionError, OutOfMemoryError

_SENTENCES = {
    "time limit": "the run has taken longer than its time limit of {seconds:g} s",
    "cancelled": "the run was cancelled",
    "outer": "the run around it was stopped",
    "devices": "another device ended the run",
}


def raise_stopped(program: str, why: str, place: str, seconds: float) -> NoReturn:
    """Raise the error that says why a run ended, and what was running then.

    Args:
        program: its name.
        why: "time limit", "cancelled", "outer", "devices" or "memory".
        place: the kernel and the user's line; "" where that is not known.
        seconds: the time limit, where that was it.
    """
    at = f"\n  in {place}" if place else ""
    if why == "memory":
        raise OutOfMemoryError(f"{program}: no memory for the work space of a kernel{at}", needed=0)
    raise ExecutionError(f"{program}: {_SENTENCES[why].format(seconds=seconds)}{at}")
