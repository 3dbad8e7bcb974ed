"""Static arguments, which are part of the cache key by value, found as `jax.jit` finds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

Numbers: TypeAlias = int | Sequence[int] | None
Names: TypeAlias = str | Iterable[str] | None


class StaticArguments:
    """The static arguments by position and by name, and their values in a call."""

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

    def __bool__(self) -> bool:
        return bool(self._numbers or self._names)

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """Split the arguments into non-static ones and static ones, each with its position or name.

        Raises:
            ValueError: a static one that cannot be hashed.
        """
        places = {n + len(args) if n < 0 else n for n in self._numbers}
        static: list[tuple[object, type, object]] = [(i, type(a), a) for i, a in enumerate(args) if i in places]
        static += [(k, type(v), v) for k, v in sorted(kwargs.items(), key=lambda item: item[0]) if k in self._names]
        for place, kind, _ in static:
            if kind.__hash__ is None:
                raise ValueError(f"static argument {place!r} must be hashable, and a {kind.__name__} is not")
        rest = tuple(a for i, a in enumerate(args) if i not in places)
        return rest, {k: v for k, v in kwargs.items() if k not in self._names}, tuple(static)
