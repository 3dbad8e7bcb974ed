"""Registry of passes written in Python: name, options and the function that rewrites a module.

A pass is spelled in a pipeline like any pass of MLIR, `name{option=value ...}`. `driver.py` runs pipelines.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Literal, get_args

from stablexla.dialects.choices import USUAL, chosen
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import label_of, place_of_function
from stablexla.targets.kinds import target_names
from stablexla.targets.pipeline.contents import Looks

PREFIX = "stablexla-"
CHOICES = "choices"
"""The option that every pass has: what its gates give."""
FUNCTION = "stablexla-python"
"""Pass name of an unregistered function in a pipeline's text: `stablexla-python{function=module:name}`."""
Side = Literal["stablehlo", "upstream"]
Rewrite = Callable[..., Any]


@dataclass(frozen=True)
class PassOption:
    """An option of a pass: its name as spelled in a pipeline, its type and the value when it is not given."""

    name: str
    type: type
    default: Any

    def read(self, text: str) -> Any:
        """Parse a value of the option's type.

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
        side: which MLIR the module belongs to; None when it takes either.
        options: by name.
        acts_on: whether it has anything to do in a module that holds that; None where only the function itself knows.
    """

    name: str
    summary: str
    function: Rewrite
    side: Side | None
    options: Mapping[str, PassOption]
    acts_on: Looks | None = None

    @functools.cached_property
    def is_users(self) -> bool:
        """Whether it is defined outside this package."""
        inside = str(getattr(self.function, "__module__", "")).startswith("stablexla.")
        return not inside or file_of(self.function).startswith("<")  # typed in, as in an example of a docstring

    def bind(self, given: Mapping[str, str]) -> Callable[[Any], Any]:
        """Bind the pass to its parsed options; calling the result on a module returns the rewritten module.

        Raises:
            CompileError: an option that the pass does not have, or a value of another type.
        """
        values = {}
        choices = given.get(CHOICES, USUAL)
        for name, text in given.items():
            if name == CHOICES:
                continue
            option = self.options.get(name)
            if option is None:
                raise CompileError(f"{self.name} has no option {name!r}", hint=_close(name, self.options, "options"))
            try:
                values[name.replace("-", "_")] = option.read(text)
            except (KeyError, ValueError):
                wanted = option.type.__name__
                raise CompileError(f"{self.name}: {name}={text} is not of type {wanted}") from None

        def run(module: Any) -> Any:
            from stablexla.dialects.contexts import unregistered_allowed  # with MLIR, which loaded programs do without

            with unregistered_allowed(module.context) if self.is_users else nullcontext(), chosen(choices):
                made = self.function(module, **values)
            return module if made is None else made

        return run


PASSES: dict[str, ModulePass] = {}
USERS_EMITTERS: list[Callable[..., Any]] = []
"""Emitters of kernels that were registered outside this package, whose files a reproducer loads."""


def module_pass(
    name: str, summary: str, *, side: Side = "upstream", acts_on: Looks | None = None
) -> Callable[[Rewrite], Rewrite]:
    """Register a function from module to module as a pass.

    Its keyword-only parameters are its options, annotated with bool, int, float or str, each with a default:
    `max_ops: int = 16` is spelled `max-ops=16` in a pipeline.

    Args:
        name: words with `-` between them, as "my-pass"; those of this package begin with `stablexla-`. A pass of a
            user's may be registered again, and then takes the place of the one before.
        summary: what it does, in one sentence.
        side: "stablehlo" when it takes a module of StableHLO's context, "upstream" when a later one.
        acts_on: a cheap test, on what a module of StableHLO holds; where it fails the pass is not run.

    Raises:
        CompileError: a name that is none or is taken, another side, or an option without a plain type or a default.

    >>> @sx.module_pass("doc-count", "counts the functions")
    ... def count(module, *, at_least: int = 0) -> None:
    ...     print(len(module.body.operations) >= at_least)
    >>> pipeline = sx.pipeline("cpu").inserting(sx.Step("count", "doc-count{at-least=1}"), after="tensor")
    >>> b = sx.XlaBuilder("example")
    >>> executable = sx.compile(b.build(b.parameter(0, sx.f32[3]) + 1), options=sx.CompileOptions(pipeline=pipeline))
    True
    >>> sx.unregister_pass("doc-count")
    """
    if not _NAME.fullmatch(name):
        raise CompileError(f"{name!r} is no name for a pass: words with `-` between them, please")
    if side not in get_args(Side):
        raise CompileError(f"the pass {name}: {side!r} is no side", hint=" or ".join(map(repr, get_args(Side))))

    def register(function: Rewrite) -> Rewrite:
        made = ModulePass(name, summary, function, side, _options(function), acts_on)
        if name in PASSES and not PASSES[name].is_users:
            raise CompileError(f"two passes are called {name}")
        if made.is_users:
            _import_classes()
            for reserved in RESERVED if name not in PASSES else ():
                reserved(name)
        PASSES[name] = made
        return function

    return register


def _import_classes() -> None:
    from stablexla.dialects.views import import_classes  # processes that load programs have this module and no MLIR

    import_classes()


def unregister_pass(name: str) -> None:
    """Unregister a user's pass; does nothing when there is no such pass.

    Raises:
        CompileError: it is a pass of this package.
    """
    if name in PASSES and not PASSES[name].is_users:
        raise CompileError(f"{name} belongs to stablexla")
    PASSES.pop(name, None)


_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
RESERVED: list[Callable[[str], None]] = []
"""Checks that raise CompileError for names of MLIR's own passes; the driver, which knows those, adds one."""


def _options(function: Rewrite) -> dict[str, PassOption]:
    """Return the options of a function: its keyword-only parameters.

    Raises:
        CompileError: one that a text cannot spell.
    """
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_kwonlyargcount and not hasattr(function, "__wrapped__"):
        return {}  # as of most; a signature takes 40 us
    found = {}
    try:
        parameters = inspect.signature(function, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise CompileError(f"{function!r} cannot be a pass: {error}") from None
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.annotation not in (bool, int, float, str) or parameter.default is parameter.empty:
                raise CompileError(
                    f"{label_of(function)}: the option {parameter.name!r} has no plain type and default",
                    hint=f"{parameter.name}: int = 0, or bool, float or str",
                )
            name = parameter.name.replace("_", "-")
            found[name] = PassOption(name, parameter.annotation, parameter.default)
    return found


def pass_of_function(function: Rewrite) -> ModulePass:
    """Wrap a function from module to module as a pass without registering it.

    Raises:
        CompileError: its keyword-only parameters are no options.
    """
    _import_classes()
    inner = function.func if isinstance(function, functools.partial) else function
    text = (inspect.getdoc(inner) or "").split("\n")[0]
    return ModulePass(label_of(inner), text, inner, None, _options(inner))


def text_of_function(function: Rewrite) -> str:
    """Spell a function in a pipeline's text; a `functools.partial` with the options that it holds.

    Raises:
        CompileError: it is no function, or a `partial` that holds positions.
    """
    if not callable(function) or isinstance(function, type):
        raise CompileError(f"{function!r} is no pass: it must be a text or a function")
    options = ""
    if isinstance(function, functools.partial):
        if function.args:
            raise CompileError("a pass that is a `partial` may hold keywords alone")
        options = "".join(f" {name.replace('_', '-')}={value}" for name, value in function.keywords.items())
        function = function.func
    return f"{FUNCTION}{{function={label_of(function)}{options}}}"


def function_of(label: str) -> Rewrite:
    """Look up the function `module:name` in a module that Python has loaded.

    Raises:
        CompileError: there is none.
    """
    module, _, path = label.partition(":")
    found: Any = sys.modules.get(module)
    if found is None and "__main__" in sys.modules:
        main = sys.modules["__main__"]
        found = main if getattr(main, "__file__", "").rsplit("/", 1)[-1] == f"{module}.py" else None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise CompileError(
            f"there is no function {label!r} in what Python has loaded",
            hint=f"stablexla-opt --load={module}.py, where the function stands outside of other functions",
            option=f"--load={module}.py, where the function stands outside of other functions",
        )
    function: Rewrite = found
    return function


def file_of(function: Rewrite) -> str:
    """Return the file of a function; "" when it is unknown."""
    return place_of_function(function)[0]


def import_passes() -> None:
    """Import all modules that register passes of this package, also those of targets not used so far."""
    from stablexla.targets.pipeline.steps import register_passes

    register_passes(*target_names())


def find_pass(name: str) -> ModulePass:
    """Look up the registered pass of that name.

    Raises:
        CompileError: there is none.
    """
    if name not in PASSES:
        import_passes()
    if name not in PASSES:
        raise CompileError(f"there is no pass {name!r}", hint=_close(name, PASSES, "passes"))
    return PASSES[name]


def _close(name: str, known: Mapping[str, object], what: str) -> str:
    """Suggest the names closest to a misspelt one, else all of them."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return " or ".join(near) if near else f"one of the {what} {', '.join(sorted(known))}" if known else ""
