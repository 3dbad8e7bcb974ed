"""Users' lowering rules and their scopes: all programs, a block of code, or one pipeline.

A rule is a value. The active ones are known only while a pipeline runs; the lowering applies them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from stablexla.dialects.caller import warn
from stablexla.dialects.lazy_dataclass import dataclass

CUSTOM_CALL, COMPOSITE = "stablehlo.custom_call", "stablehlo.composite"
SCHEDULES = "stablexla.schedules"
"""The name of a rule that chooses the schedules of kernels, see `targets/codegen/schedule.py`."""


@dataclass(frozen=True)
class LoweringRule:
    """How one operation is lowered.

    Attributes:
        name: an operation, as "stablehlo.tanh"; "stablehlo.custom_call:TARGET"; or a composite, as "my.gelu" or
            "chlo.erf", an operation of CHLO, which is kept as a composite for it.
        function: takes a `LoweringContext` and the lowered operands, returns the lowered results.
    """

    name: str
    function: Callable[..., Any]

    @property
    def is_composite(self) -> bool:
        """Whether it is for a composite."""
        return not self.name.startswith("stablehlo.")

    @property
    def label(self) -> str:
        """The function's name, with its module's: `train:gelu`."""
        return label_of(self.function)

    @property
    def place(self) -> str:
        """File and line of the function; "" when they are not known."""
        file, line = place_of_function(self.function)
        return f"{file}:{line}" if file else ""

    def __call__(self, *operands: Any, **keywords: Any) -> Any:
        """Call the function, so that a rule can call another one."""
        return self.function(*operands, **keywords)

    def __str__(self) -> str:
        return f"{self.name}: {self.label}" + (f" ({self.place})" if self.place else "")


def label_of(function: Callable[..., Any]) -> str:
    """Return a function's module and qualified name; for a script, the name of its file.

    >>> label_of(label_of)
    'stablexla.dialects.rules:label_of'
    """
    module = getattr(function, "__module__", None) or "?"
    if module == "__main__":
        file = place_of_function(function)[0].replace("\\", "/").rsplit("/", 1)[-1]
        module = file.removesuffix(".py") if file.endswith(".py") else module
    return f"{module}:{getattr(function, '__qualname__', type(function).__name__)}"


def place_of_function(function: Callable[..., Any]) -> tuple[str, int]:
    """Return file and first line of a function; ("", 0) when it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


_registered: dict[str, LoweringRule] = {}
_scoped: ContextVar[tuple[LoweringRule, ...]] = ContextVar("stablexla_scoped_rules", default=())
_alone: ContextVar[tuple[LoweringRule, ...] | None] = ContextVar("stablexla_only_these_rules", default=None)
_active: ContextVar[Mapping[str, LoweringRule]] = ContextVar("stablexla_active_rules")
_applied: ContextVar[set[str] | None] = ContextVar("stablexla_applied_rules", default=None)
_is_one_program: ContextVar[bool] = ContextVar("stablexla_rules_of_one_program", default=False)
_verified: ContextVar[bool] = ContextVar("stablexla_verified_rules", default=False)


def register(rule: LoweringRule) -> None:
    """Register a rule for all programs compiled from now on; it replaces one of the same name."""
    _registered[rule.name] = rule


def unregister(name: str) -> None:
    """Unregister a rule; does nothing when there is none of that name."""
    _registered.pop(name, None)


def unregister_all() -> None:
    """Unregister all rules."""
    _registered.clear()


@contextmanager
def scoped(rules: Iterable[LoweringRule]) -> Iterator[None]:
    """Activate rules for programs compiled inside a `with` block, in this thread."""
    token = _scoped.set((*_scoped.get(), *rules))
    try:
        yield
    finally:
        _scoped.reset(token)


@contextmanager
def only(rules: Iterable[LoweringRule]) -> Iterator[None]:
    """Leave out all registered rules but these inside a `with` block, in this thread."""
    token = _alone.set(tuple(rules))
    try:
        yield
    finally:
        _alone.reset(token)


def in_scope() -> tuple[LoweringRule, ...]:
    """Return the rules for a program compiled here and now; the innermost of each name."""
    if (alone := _alone.get()) is not None:
        return alone
    return merged(_registered.values(), _scoped.get())


def merged(*groups: Iterable[LoweringRule]) -> tuple[LoweringRule, ...]:
    """Merge rules by name; later groups win."""
    by_name = {rule.name: rule for group in groups for rule in group}
    return tuple(by_name[name] for name in sorted(by_name))


@contextmanager
def active(rules: Iterable[LoweringRule]) -> Iterator[None]:
    """Activate these rules alone while a pipeline runs."""
    token = _active.set({rule.name: rule for rule in rules})
    try:
        yield
    finally:
        _active.reset(token)


def active_rules() -> Mapping[str, LoweringRule]:
    """Return the rules of the running pipeline, by name."""
    return _active.get({})


@contextmanager
def each_used(rules: Iterable[LoweringRule]) -> Iterator[None]:
    """Warn of rules that were applied to nothing inside a `with` block, in which a program is compiled.

    Where `only` holds, the program is a part of another one, and nothing is said.
    """
    used = set[str]()
    token = _applied.set(used)
    try:
        yield
    finally:
        _applied.reset(token)
    for rule in rules if _alone.get() is None else ():
        if rule.name not in used:
            kind, what = ("lowering rule", "such operation when it is lowered")
            if rule.name == SCHEDULES:
                kind, what = "rule", "kernel whose schedule can be chosen"
            warn(f"the {kind} {rule} has no effect: the program has no {what}")


def applied(rule: LoweringRule) -> None:
    """Note that a rule was applied."""
    if (used := _applied.get()) is not None:
        used.add(rule.name)


@contextmanager
def one_program() -> Iterator[None]:
    """Count the rules that are registered as rules for the program that is compiled, as the tools do."""
    token = _is_one_program.set(True)
    try:
        yield
    finally:
        _is_one_program.reset(token)


def is_one_program() -> bool:
    """Whether `one_program` holds."""
    return _is_one_program.get()


@contextmanager
def verified() -> Iterator[None]:
    """Verify inside a `with` block what each rule emitted, to find the one at fault; it takes time."""
    token = _verified.set(True)
    try:
        yield
    finally:
        _verified.reset(token)


def are_verified() -> bool:
    """Whether the rules' operations are verified one rule after another."""
    return _verified.get()


def rule_for(op: Any) -> LoweringRule | None:
    """Return the active rule for an operation of StableHLO, if there is one."""
    rules = _active.get(None)
    if not rules:
        return None
    if op.name == COMPOSITE:
        return rules.get(str(op.attributes["name"].value))
    if op.name == CUSTOM_CALL:
        return rules.get(f"{CUSTOM_CALL}:{op.attributes['call_target_name'].value}") or rules.get(CUSTOM_CALL)
    return rules.get(op.name)
