"""The registry of passes that are written in Python: name, options and the function that rewrites a module.

A pass is spelled in a pipeline like any pass of MLIR, `name{option=value ...}`. What runs pipelines is in
`driver.py`.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stablexla.dialects.errors import CompileError

PREFIX = "stablexla-"
Side = Literal["stablehlo", "upstream"]
Rewrite = Callable[..., Any]


@dataclass(frozen=True)
class PassOption:
    """An option of a pass: its name as spelled in a pipeline, its type and the value when it is not given."""

    name: str
    type: type
    default: Any

    def read(self, text: str) -> Any:
        """The value that `text` spells.

        Raises:
            ValueError: it is no value of the option's type.
        """
        if self.type is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return self.type(text)


@dataclass(frozen=True)
class ModulePass:
    """A registered pass.

    Attributes:
        name: as it is spelled in a pipeline.
        summary: what it does, in one sentence.
        function: takes a module (options by keyword); returns a new module, or None when it changed that one.
        side: which MLIR the module belongs to.
        options: by name.
    """

    name: str
    summary: str
    function: Rewrite
    side: Side
    options: Mapping[str, PassOption]

    def bind(self, given: Mapping[str, str]) -> Callable[[Any], Any]:
        """The pass with its options read; calling it on a module gives the module that goes on.

        Raises:
            CompileError: an option that the pass does not have, or a value of another type.
        """
        values = {}
        for name, text in given.items():
            option = self.options.get(name)
            if option is None:
                raise CompileError(f"{self.name} has no option {name!r}", hint=_close(name, self.options, "options"))
            try:
                values[name.replace("-", "_")] = option.read(text)
            except (KeyError, ValueError):
                wanted = option.type.__name__
                raise CompileError(f"{self.name}: {name}={text} is not of type {wanted}") from None

        def run(module: Any) -> Any:
            made = self.function(module, **values)
            return module if made is None else made

        return run


PASSES: dict[str, ModulePass] = {}


def module_pass(name: str, summary: str, *, side: Side = "upstream") -> Callable[[Rewrite], Rewrite]:
    """Registers a function from module to module as a pass.

    Its keyword-only parameters are its options, annotated with bool, int, float or str, each with a default:
    `max_ops: int = 16` is spelled `max-ops=16` in a pipeline.

    Args:
        name: begins with `stablexla-`.
        summary: what it does, in one sentence.
        side: "stablehlo" when it takes a module of StableHLO's context, "upstream" when a later one.
    """
    assert name.startswith(PREFIX), f"{name} must begin with {PREFIX}"
    assert name not in PASSES, f"two passes are called {name}"

    def register(function: Rewrite) -> Rewrite:
        PASSES[name] = ModulePass(name, summary, function, side, _options(function))
        return function

    return register


def _options(function: Rewrite) -> dict[str, PassOption]:
    found = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert parameter.annotation in (bool, int, float, str), f"{function}: {parameter} needs a plain type"
            name = parameter.name.replace("_", "-")
            found[name] = PassOption(name, parameter.annotation, parameter.default)
    return found


def find_pass(name: str) -> ModulePass:
    """The registered pass of that name.

    Raises:
        CompileError: there is none.
    """
    if name not in PASSES:
        raise CompileError(f"there is no pass {name!r}", hint=_close(name, PASSES, "passes"))
    return PASSES[name]


def _close(name: str, known: Mapping[str, object], what: str) -> str:
    """The names most like a misspelt one, else all of them."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return " or ".join(near) if near else f"one of the {what} {', '.join(sorted(known))}" if known else ""
