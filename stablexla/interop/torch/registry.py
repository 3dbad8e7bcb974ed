"""The table of rules: for each operator of PyTorch the function that builds it from XLA's operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from stablexla.dialects.errors import UnsupportedError

F = TypeVar("F", bound=Callable[..., Any])

# What the result's type says already, what concerns memory that arrays here have not, and PyTorch's generators, whose
# numbers nobody else draws.
_IGNORED = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "implicit"}


class Rule:
    """A rule and how it takes an operator's arguments.

    Attributes:
        function: takes the `Call`, the operator's arguments by place, and those of its keyword arguments that it names.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self._takes_all = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self._count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        self._names = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}

    def arguments(self, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments as the rule takes them; defaults are those of the operator's schema.

        Raises:
            UnsupportedError: an argument that the rule does not take, and that is not at its default.
        """
        if schema is None:  # of a higher-order operator
            return list(args), kwargs
        by_place, by_name = [], {}
        for place, argument in enumerate(schema.arguments):
            given = argument.name in kwargs or (place < len(args) and not argument.kwarg_only)
            if argument.kwarg_only:
                value = kwargs.get(argument.name, argument.default_value)
                taken = argument.name in self._names
                if taken:
                    by_name[argument.name] = value
            else:
                value = args[place] if place < len(args) else kwargs.get(argument.name, argument.default_value)
                taken = self._takes_all or place < self._count
                if taken:
                    by_place.append(value)
            ignored = taken or argument.name in _IGNORED or value is None
            if given and not ignored and value != argument.default_value:
                raise UnsupportedError(f"there is no rule for its argument {argument.name} = {value!r}")
        return by_place, by_name


RULES: dict[str, Rule] = {}


def aten(*names: str) -> Callable[[F], F]:
    """Register a rule for operators of PyTorch, by their full names.

    A rule returns the value of each result: an `XlaOp` of the result's shape, which the translator converts to the
    result's element type.

    >>> @aten("aten.example.default")
    ... def example(call, x):
    ...     return sx.tanh(x)
    >>> RULES.pop("aten.example.default").function is example
    True
    """

    def register(function: F) -> F:
        for name in names:
            assert name not in RULES, f"two rules for {name}"
            RULES[name] = Rule(function)
        return function

    return register


@cache
def load_rules() -> dict[str, Rule]:
    """Return the table with the rules of all families, which are the modules of the folder `rules`."""
    from stablexla.interop.torch import rules

    for module in iter_modules(rules.__path__):
        import_module(f"{rules.__name__}.{module.name}")
    return RULES
