"""Updates of arrays in JAX's control flow: right, and done in place. Oracles: numpy, by a stand-in for `jax.lax`, and
XLA:CPU."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import stablexla as sx
from benchmarks import updates
from benchmarks.updates import IDIOMS, Idiom, copied, drawn, loop, lowered

SIZE, TURNS = 16 * 512, 40


class Array(np.ndarray):
    """An array of numpy with JAX's updates, each of which makes a new one."""

    @property
    def at(self) -> _At:
        return _At(self)


class _At:
    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, place: Any) -> Any:
        def updated(value: Any, *, added: bool) -> Array:
            made = self._array.copy()
            made[place] = made[place] + value if added else value
            return made

        return SimpleNamespace(set=lambda v: updated(v, added=False), add=lambda v: updated(v, added=True))


class NumpyLax:
    """The functions of `jax.lax` that idioms use, on arrays of numpy."""

    @staticmethod
    def fori_loop(first: int, last: int, body: Callable[[int, Any], Any], state: Any) -> Any:
        for turn in range(first, last):
            state = body(turn, state)
        return state

    @staticmethod
    def while_loop(goes_on: Callable[[Any], bool], body: Callable[[Any], Any], state: Any) -> Any:
        while goes_on(state):
            state = body(state)
        return state

    @staticmethod
    def scan(body: Callable[[Any, Any], tuple[Any, Any]], state: Any, given: Any) -> tuple[Any, np.ndarray]:
        outputs = []
        for each in np.asarray(given):
            state, output = body(state, int(each))
            outputs.append(output)
        return state, np.array(outputs, np.asarray(outputs[0]).dtype)

    @staticmethod
    def cond(condition: Any, this: Callable[..., Any], other: Callable[..., Any], *given: Any) -> Any:
        return (this if condition else other)(*given)

    @staticmethod
    def switch(which: int, branches: list[Callable[..., Any]], *given: Any) -> Any:
        return branches[which](*given)

    @staticmethod
    def select(condition: Any, this: Any, other: Any) -> Any:
        return this if condition else other

    @staticmethod
    def dynamic_update_slice(array: Array, part: Any, starts: Any) -> Array:
        return array.at[starts[0] : starts[0] + len(part)].set(part)


def check(idiom: Idiom, monkeypatch: pytest.MonkeyPatch) -> sx.Executable:
    """Runs an idiom and compares it with numpy and XLA:CPU; returns the program."""
    arrays = drawn(idiom, SIZE)
    made = lowered(idiom, arrays, TURNS)
    program = sx.compile(made.as_text())
    results = program.execute([a.copy() for a in arrays])
    by_xla = jax.tree.leaves(made.compile()(*(a.copy() for a in arrays)))
    monkeypatch.setattr(updates, "lax", NumpyLax)
    by_numpy = jax.tree.leaves(idiom.run(TURNS, *(a.copy().view(Array) for a in arrays)))
    for result, *others in zip(results, by_xla, by_numpy, strict=True):
        for other in others:
            np.testing.assert_array_equal(result, np.asarray(other))
    return program


@pytest.mark.parametrize("name", IDIOMS)
def test_no_turn_copies_an_array(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    idiom = IDIOMS[name]
    program = check(idiom, monkeypatch)
    # Arrays that change places in one branch alone: one is put aside.
    assert copied(program, idiom) == (3 * 4 * SIZE if name == "two arrays that change places under `cond`" else 0)
    assert bool(program.aliases) == idiom.is_donated


def test_an_old_array_that_is_needed_is_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whichever branch runs: the next turn reads the array from before the conditional beside the new one."""

    def body(t: Any, c: Any) -> Any:
        a, _ = c
        return updates.lax.cond(a[t] > 0, lambda a: a.at[t + 1].set(1.0), lambda a: a.at[t].add(2.0), a), a

    idiom = loop(body, 2)
    assert copied(check(idiom, monkeypatch), idiom) == 4 * SIZE
