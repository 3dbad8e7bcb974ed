"""The calls of each function: those written down here, module by module, and otherwise guesses from its signature."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interop.proof.automatic import guesses
from tests.interop.proof.calls import Call
from tests.interop.proof.catalogue import (
    attention,
    collectives,
    control,
    distributions,
    lax_operations,
    matrices,
    no_computation,
    numpy_functions,
    random_numbers,
    science,
)
from tests.interop.proof.gradients import gradient_of
from tests.interop.proof.inventory import Public

ENTRIES: dict[str, list[Call]] = {}
"""By the function's path. What is not here is guessed."""

for _part in (
    attention,
    collectives,
    control,
    distributions,
    lax_operations,
    matrices,
    numpy_functions,
    random_numbers,
    science,
):
    assert not ENTRIES.keys() & _part.ENTRIES.keys(), sorted(ENTRIES.keys() & _part.ENTRIES.keys())
    ENTRIES |= _part.ENTRIES

REASONS: dict[str, str] = no_computation.REASONS
"""Why a function is no computation, by path."""


def calls_of(public: Public) -> Iterator[Call]:
    """What a function is tried with; at last its gradient, where it has one."""
    calls = ENTRIES[public.path] if public.path in ENTRIES else list(guesses(public))
    yield from calls
    gradient = gradient_of(public.value, calls)
    if gradient is not None:
        yield gradient


def reason_of(public: Public) -> str:
    """Why there is nothing to compute; "" when there is."""
    return public.reason or REASONS.get(public.path, "")
