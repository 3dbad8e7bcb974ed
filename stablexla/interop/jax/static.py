"""Arguments that are named to a decorator, found as `jax.jit` finds them; static ones are parts of keys by value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self, TypeAlias

from stablexla.dialects.errors import CompileError

Numbers: TypeAlias = int | Sequence[int] | None
Names: TypeAlias = str | Iterable[str] | None


class NamedArguments:
    """Arguments by position and by name, as decorators of JAX take them."""

    def __init__(self, function: Callable[..., Any], numbers: Numbers, names: Names) -> None:
        self._numbers = [numbers] if isinstance(numbers, int) else list(numbers or ())
        self._names = {names} if isinstance(names, str) else set(names or ())
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return
        places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if names is None:
            near = [n + len(places) if n < 0 else n for n in self._numbers]
            self._names |= {places[n] for n in near if n < len(places) and places[n] in by_name}
        elif numbers is None:
            self._numbers = [places.index(name) for name in self._names if name in places]

    @classmethod
    def of(cls, function: Callable[..., Any], given: int | str | Sequence[int | str]) -> Self:
        """Return arguments that are given by places or names, or both.

        Raises:
            CompileError: the function has no such argument.
        """
        keys = [given] if isinstance(given, (int, str)) else list(given)
        numbers, names = [k for k in keys if not isinstance(k, str)], [k for k in keys if isinstance(k, str)]
        found, more = cls(function, numbers or None, None), cls(function, None, names or None)
        found._numbers += more._numbers
        found._names |= more._names
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):
            return found
        many, named = (
            any(p.kind is kind for p in parameters)
            for kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        )
        count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        known = [p.name for p in parameters]
        for key in keys:
            if not (named or key in known if isinstance(key, str) else many or -count <= key < count):
                raise CompileError(f"the function has no argument {key!r}", hint=", ".join(known))
        return found

    def __bool__(self) -> bool:
        return bool(self._numbers or self._names)

    def places(self, count: int) -> set[int]:
        """Return which of so many positional arguments they are."""
        return {n + count if n < 0 else n for n in self._numbers}

    def has_name(self, name: str) -> bool:
        """Return whether the argument of that name is one."""
        return name in self._names


class StaticArguments(NamedArguments):
    """The static arguments by position and by name, and their values in a call."""

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """Split the arguments into non-static ones and static ones, each with its position or name.

        Raises:
            ValueError: a static one that cannot be hashed.
        """
        places = self.places(len(args))
        static: list[tuple[object, type, object]] = [(i, type(a), a) for i, a in enumerate(args) if i in places]
        static += [(k, type(v), v) for k, v in sorted(kwargs.items(), key=lambda item: item[0]) if k in self._names]
        for place, kind, _ in static:
            if kind.__hash__ is None:
                raise ValueError(f"static argument {place!r} must be hashable, and a {kind.__name__} is not")
        rest = tuple(a for i, a in enumerate(args) if i not in places)
        return rest, {k: v for k, v in kwargs.items() if k not in self._names}, tuple(static)
