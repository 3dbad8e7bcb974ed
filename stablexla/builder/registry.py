"""The list of the builder's operations: name, family, what each emits and the element types it takes.

`docs/ops.md` and the completeness test derive from it; checks read the allowed element types.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from stablexla.builder.source import ends_at_user
from stablexla.dialects.builds.stablehlo_version import has_stablehlo, require_stablehlo
from stablexla.dialects.element_types import ELEMENT_TYPES, ElementType, Kind
from stablexla.dialects.lazy_dataclass import dataclass

P = ParamSpec("P")
R = TypeVar("R")

PRED = frozenset({Kind.PRED})
SIGNED = frozenset({Kind.SIGNED})
INTEGER = frozenset({Kind.SIGNED, Kind.UNSIGNED})
FLOAT = frozenset({Kind.FLOAT})
COMPLEX = frozenset({Kind.COMPLEX})
NUMBER = INTEGER | FLOAT | COMPLEX
ANY = NUMBER | PRED

_WORDS = {
    Kind.PRED: "pred",
    Kind.SIGNED: "signed integer",
    Kind.UNSIGNED: "unsigned integer",
    Kind.FLOAT: "floating-point",
    Kind.COMPLEX: "complex",
}


@dataclass(frozen=True)
class Operation:
    """One row of the table.

    Attributes:
        name: the function's name in the package, or `XlaBuilder.name` for a method of the builder.
        family: the name of its file in ops/ and of the lowering's file.
        emits: the StableHLO (or CHLO) operation that it comes to, or "" when it is only arranging.
        kinds: the kinds of element types that it takes.
        only: names of element types, when not all of those kinds are taken.
        since: the version of StableHLO that it came with, when a supported jaxlib has an older one.
    """

    name: str
    family: str
    emits: str
    kinds: frozenset[Kind]
    only: tuple[str, ...] = ()
    since: str = ""

    def allows(self, element_type: ElementType) -> bool:
        """Whether operands of this element type are taken."""
        return element_type.kind in self.kinds and (not self.only or element_type.name in self.only)

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """The element types that are taken, in the order of the table of types."""
        return tuple(filter(self.allows, ELEMENT_TYPES))

    @property
    def types_in_words(self) -> str:
        """The element types that are taken, for an error: "signed integer, floating-point or complex"."""
        if self.only:
            words = list(self.only)
        else:
            words = [word for kind, word in _WORDS.items() if kind in self.kinds]
            if self.kinds >= INTEGER:
                words = [w for w in words if w not in ("signed integer", "unsigned integer")]
                words.insert(words.index("pred") + 1 if "pred" in words else 0, "integer")
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


REGISTRY: dict[str, Operation] = {}


def operation(
    emits: str = "",
    kinds: frozenset[Kind] = ANY,
    *,
    only: tuple[str, ...] = (),
    family: str = "",
    since: str = "",
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Enters a function of a family's file, or a method of the builder, into the table.

    With `since` the function raises UnsupportedError where the installed StableHLO is older.
    """

    def enter(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__qualname__.removeprefix("XlaBuilder.")
        where = family or function.__module__.rpartition(".")[2]
        if name in REGISTRY:
            raise ValueError(f"the operation {name} is registered twice")
        REGISTRY[name] = Operation(name, where, emits, kinds, only, since)
        return ends_at_user(function if not since or has_stablehlo(since) else _refusal(function, since))

    return enter


def _refusal(function: Callable[P, R], since: str) -> Callable[P, R]:
    """A function of an operation that the installed StableHLO lacks; its help has no example, since none runs."""

    @wraps(function)
    def refuse(*args: P.args, **kwargs: P.kwargs) -> R:
        require_stablehlo(since, function.__name__)
        raise AssertionError("the installed StableHLO has it")

    refuse.__doc__ = (function.__doc__ or "").partition("\n    >>>")[0]
    return refuse
