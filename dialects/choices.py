"""Gates, thresholds at which rewrites, strategies and emitters begin or end; and a compilation's choices of them.

A gate stands beside the code that asks it. Its usual value was measured; its eager one is that with which arrays of a
few elements go the way of large ones, so that small programs try what large ones take: the least of lower and upper
bounds alike. A pass is given its choices as
the option `choices`, which every pass has: `stablexla-join-factors{choices=eager}`.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass

GATES: dict[str, Gate] = {}
"""All gates by name, as far as their modules are imported."""
USUAL, EAGER, DRAWN = "usual", "eager", "drawn:"


class Gate:
    """A threshold of a heuristic; calling it gives its value in the compilation that is running.

    Attributes:
        name: words with `-` between them, and a dot after the first, which says where it stands.
        usual: its value, unless a compilation chooses another.
        eager: its value under the choices "eager".
    """

    def __init__(self, name: str, usual: int, *, eager: int) -> None:
        assert name not in GATES, name
        self.name, self.usual, self.eager = name, usual, eager
        GATES[name] = self

    def __call__(self) -> int:
        choices = _active.get()
        return self.usual if choices is None else choices.value(self)

    def __repr__(self) -> str:
        return f"Gate({self.name!r}, {self.usual}, eager={self.eager})"


@dataclass(frozen=True)
class Choices:
    """A value for each gate.

    Attributes:
        base: "usual", "eager", or "drawn:7", with which each gate has either value or one between, by that number.
        own: gates by name that have other values.

    >>> print(Choices.of("eager+join-factors.least-elements=64"))
    eager+join-factors.least-elements=64
    """

    base: str = USUAL
    own: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(text: str) -> Choices:
        """Parse what `str` spells.

        Raises:
            CompileError: it is no such text, or names a gate that there is not.
        """
        base, *given = (text or USUAL).split("+")
        if base not in (USUAL, EAGER) and not (base.startswith(DRAWN) and base.removeprefix(DRAWN).isdecimal()):
            raise CompileError(f"choices are {USUAL}, {EAGER} or {DRAWN}NUMBER, not {base!r}")
        return Choices(base, tuple(_own(part) for part in given))

    def value(self, gate: Gate) -> int:
        """Return a gate's value."""
        for name, value in self.own:
            if name == gate.name:
                return value
        if self.base == USUAL:
            return gate.usual
        if self.base == EAGER:
            return gate.eager
        drawn = random.Random(f"{self.base} {gate.name}")
        low, high = sorted((gate.usual, gate.eager))
        between = round(low * (high / low) ** drawn.random())
        return drawn.choice((gate.usual, gate.eager, between))

    def __str__(self) -> str:
        return "+".join([self.base, *(f"{name}={value}" for name, value in self.own)])


def _own(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if name not in GATES:
        near = difflib.get_close_matches(name, GATES, n=3) or sorted(GATES)
        raise CompileError(f"there is no gate {name!r}", hint=" or ".join(near))
    if not value.isdecimal() or not int(value):
        raise CompileError(f"the gate {name} needs a number of 1 at least, not {value!r}")
    return name, int(value)


_active: ContextVar[Choices | None] = ContextVar("stablexla_active_choices", default=None)


def active_choices() -> str:
    """Return the choices of the compilation that is running, as text."""
    return str(_active.get() or USUAL)


@contextmanager
def chosen(text: str) -> Iterator[None]:
    """Have gates give the values of these choices, in this thread.

    Raises:
        CompileError: as `Choices.of`.
    """
    token = _active.set(None if text == USUAL else Choices.of(text))
    try:
        yield
    finally:
        _active.reset(token)
