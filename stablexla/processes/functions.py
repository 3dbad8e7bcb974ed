"""Functions of this process that another process can import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from stablexla.compiling.composite_kernels import accept_all
from stablexla.compiling.program_bytes import mentions
from stablexla.dialects.composites import CompositeKernel, Key
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.rules import LoweringRule
from stablexla.lowering.rules.calls.composites import call_of_host
from stablexla.targets.pipeline.passes import FUNCTION
from stablexla.targets.pipeline.pipelines import Pipeline


def rules_of(pipeline: Pipeline) -> list[list[str]]:
    """Return the users' lowering rules: the operation, and the function's module and name.

    Raises:
        UnsupportedError: one of them is no function that another process can import.
    """
    return [
        [rule.name, _importable_module(rule.function, f"the lowering rule for {rule.name}"), rule.function.__qualname__]
        for rule in pipeline.rules
    ]


def modules_of(pipeline: Pipeline) -> list[str]:
    """Return the modules that define the user passes of a pipeline.

    Raises:
        UnsupportedError: one of them is no function that another process can import.
    """
    found: dict[str, None] = {}
    for step in pipeline:
        for element in step.elements:
            if element.is_python:
                run, _ = element.bound()
                if run.is_users:
                    module_of = _importable_module if element.name == FUNCTION else _module_of
                    found[module_of(run.function, f"the pass {element.name}")] = None
    return list(found)


def _module_of(function: Callable[..., Any], what: str) -> str:
    module = str(getattr(function, "__module__", ""))
    name = str(getattr(function, "__qualname__", "<"))
    if module in ("", "__main__") or "<" in name or module not in sys.modules:
        raise _not_there(f"{what} is {module}.{name}")
    return module


def _importable_module(function: Callable[..., Any], what: str) -> str:
    """Return the module that has this very function under its name; it may have become a rule."""
    module, name = _module_of(function, what), function.__qualname__
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    if (found.function if isinstance(found, LoweringRule) else found) is not function:
        raise _not_there(f"{what} is not what {module}.{name} is now")
    return module


def _not_there(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"compiling in another process: {what}, which that process cannot import",
        hint="define it in a module of its own, outside of other functions, or compile with isolated=False",
    )


def sendable_composites(registered: dict[Key, CompositeKernel], program: Callable[[], bytes]) -> list[list[Any]]:
    """Return name, version and target of the registered composite kernels; `program` returns the program's bytes.

    Raises:
        UnsupportedError: the program may use one whose function has to be asked while it is compiled.
    """
    found = []
    for key, kernel in registered.copy().items():
        is_called = isinstance(kernel.rule, partial) and kernel.rule.func is call_of_host
        if is_called and kernel.accepts is accept_all:
            found.append(list(key))
        elif mentions(key[0], program()):
            raise UnsupportedError(
                f"compiling in another process: the kernel that is registered for {key[0]!r} cannot be handed over",
                hint="compile with isolated=False",
            )
    return found
