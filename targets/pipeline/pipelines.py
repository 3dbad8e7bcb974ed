"""Pipelines as values: named steps, each a text of passes, that can be printed, compared, sliced and edited.

`driver.py` runs them; `passes.py` is the registry of passes written in Python.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from stablexla.dialects.choices import USUAL
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import SCHEDULES, LoweringRule, merged
from stablexla.targets.pipeline.passes import (
    CHOICES,
    FUNCTION,
    PASSES,
    PREFIX,
    ModulePass,
    Rewrite,
    find_pass,
    function_of,
    pass_of_function,
    text_of_function,
)

Passes: TypeAlias = str | Rewrite | Sequence[str | Rewrite]

LOWER = "stablexla-lower-to-tensor"
"""The pass that takes a module from StableHLO's context to upstream's."""
EMIT = "stablexla-emit-kernels"
"""The CPU's pass that writes the loops of kernels."""


@dataclass(frozen=True)
class Element:
    """One element of a pipeline's text: a pass with its options, or a nest such as `func.func(cse)`.

    Attributes:
        text: as it is spelled.
        function: the function, when it is one that is not registered.
    """

    text: str
    function: Rewrite | None = None

    @functools.cached_property
    def name(self) -> str:
        """The pass's name, or the operation that a nest is anchored on."""
        return re.split(r"[({]", self.text, maxsplit=1)[0].strip()

    @property
    def is_python(self) -> bool:
        """Whether it names a pass written in Python."""
        return self.name.startswith(PREFIX) or self.name in PASSES

    def choosing(self, choices: str) -> str:
        """Spell it with choices of gates, if it is a pass written in Python that has none."""
        if not self.name.startswith(PREFIX) or self.name == FUNCTION or CHOICES in self._options:
            return self.text
        options = self.text[len(self.name) :].strip()[1:-1]
        return f"{self.name}{{{options}{' ' * bool(options)}{CHOICES}={choices}}}"

    @property
    def options(self) -> dict[str, str]:
        """The options of a pass written in Python, as texts."""
        return dict(self._options)

    @functools.cached_property
    def _options(self) -> dict[str, str]:
        inside = self.text[len(self.name) :].strip()
        if not inside:
            return {}
        if not (inside.startswith("{") and inside.endswith("}")):
            raise CompileError(f"the options of {self.name} must stand in braces, not {inside!r}")
        return dict(_option(word) for word in _WORD.findall(inside[1:-1]))

    @property
    def parts(self) -> tuple[Element, ...]:
        """Return the passes of a nest one by one, each in a nest of its own; any other element is one part."""
        inside = self.text[len(self.name) :].strip()
        if not (inside.startswith("(") and inside.endswith(")")):
            return (self,)
        return tuple(Element(f"{self.name}({part.text})") for element in _split(inside[1:-1]) for part in element.parts)

    def bound(self) -> tuple[ModulePass, dict[str, str]]:
        """Return the Python pass that it names, and its given options.

        Raises:
            CompileError: there is none.
        """
        options = self.options
        if self.name != FUNCTION:
            return find_pass(self.name), options
        label = options.pop("function", "")
        return pass_of_function(self.function or function_of(label)), options


# An option; its value may stand in quotes, as one with blanks must.
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


def _option(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if value[:1] in ("'", '"') and value[-1:] == value[:1]:
        value = value[1:-1]
    return key, value if equals else "true"


@dataclass(frozen=True)
class Step:
    """A named part of a pipeline; the stage of the program after it has the same name.

    Attributes:
        name: a word.
        passes: elements as `mlir-opt --pass-pipeline` takes them inside `builtin.module(...)`, and among them
            registered passes that are written in Python. A function from module to module may stand for a pass, and
            a sequence of texts and functions for several.
        leaves: dialects (`arith`) and operations (`builtin.module`) that may be there after the step;
            None checks nothing.
        functions: those among the passes, by their spelling in the text.

    Raises:
        CompileError: a name that is no word, brackets that do not match, or what is neither text nor function.

    >>> def look(module):
    ...     print(module.body.operations[0].name)
    >>> print(sx.Step("look", ["cse", look]))
    look: builtin.module(cse,stablexla-python{function=...:look})
    """

    name: str
    passes: str
    leaves: frozenset[str] | None = None
    functions: tuple[tuple[str, Rewrite], ...] = ()

    def __init__(
        self,
        name: str,
        passes: Passes,
        leaves: Iterable[str] | None = None,
        functions: Iterable[tuple[str, Rewrite]] = (),
    ) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise CompileError(f"{name!r} is no name for a step: one word, please")
        known = dict(functions)
        parts = passes if isinstance(passes, Sequence) and not isinstance(passes, str) else (passes,)
        text = ",".join(p if isinstance(p, str) else _named(p, known) for p in parts).strip()
        if text.startswith("builtin.module(") and len(split(text)) == 1:
            text = text.removeprefix("builtin.module(").removesuffix(")")
        elements = split(text)
        labels = {e.options.get("function") for e in elements if e.name == FUNCTION}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "passes", ",".join(e.text for e in elements))
        object.__setattr__(self, "leaves", None if leaves is None else frozenset(leaves))
        object.__setattr__(self, "functions", tuple(known_ for known_ in known.items() if known_[0] in labels))

    @property
    def elements(self) -> tuple[Element, ...]:
        """The passes one by one."""
        if not self.functions:
            return _split(self.passes)
        functions = dict(self.functions)
        return tuple(
            replace(e, function=functions.get(e.options.get("function", ""))) if e.name == FUNCTION else e
            for e in _split(self.passes)
        )

    @property
    def parts(self) -> tuple[Element, ...]:
        """The passes one by one, those inside of nests too."""
        return tuple(part for element in self.elements for part in element.parts)

    @property
    def text(self) -> str:
        """The step as `stablexla-opt --pass-pipeline` takes it."""
        return f"builtin.module({self.passes})"

    def runs(self) -> Iterator[tuple[bool, tuple[Element, ...]]]:
        """Yield the elements in maximal runs for one pass manager; a pass written in Python is a run of its own.

        Yields:
            Whether it is a Python pass, and the elements.
        """
        waiting: list[Element] = []
        for element in self.elements:
            if not element.is_python:
                waiting.append(element)
                continue
            if waiting:
                yield False, tuple(waiting)
            waiting = []
            yield True, (element,)
        if waiting:
            yield False, tuple(waiting)

    def __str__(self) -> str:
        tail = "" if self.leaves is None else " -> " + ",".join(sorted(self.leaves))
        return f"{self.name}: {self.text}{tail}"


def _named(function: Rewrite, known: dict[str, Rewrite]) -> str:
    """Spell a function in a step's text, numbering functions of equal names, and add it to `known`."""
    text = text_of_function(function)
    label = Element(text).options["function"]
    inner = getattr(function, "func", function)
    numbered, number = label, 1
    while known.setdefault(numbered, inner) is not inner:
        number += 1
        numbered = f"{label}#{number}"
    return text.replace(label, numbered, 1)


def split(text: str) -> list[Element]:
    """Split a text of passes at its outermost commas.

    Raises:
        CompileError: brackets that do not match.

    >>> [e.name for e in split("cse, func.func(cse,canonicalize{top-down=1}), stablexla-outline{max=2}")]
    ['cse', 'func.func', 'stablexla-outline']
    """
    return list(_split(text))


@functools.lru_cache(maxsize=512)
def _split(text: str) -> tuple[Element, ...]:
    closing = {"(": ")", "{": "}", "[": "]", "<": ">"}
    parts, start, open_, quote = [], 0, list[str](), ""
    for at, c in enumerate(text):
        if c == quote or (not quote and c in "'\"" and "}" in open_):
            quote = "" if quote else c
        elif quote:
            continue
        elif c in closing:
            open_.append(closing[c])
        elif c in closing.values():
            if not open_ or open_.pop() != c:
                raise CompileError(f"the brackets of a pipeline do not match at {_tail(text[: at + 1])}")
        elif c == "," and not open_:
            parts.append(text[start:at])
            start = at + 1
    if open_:
        raise CompileError(f"the pipeline ends before its {open_[-1]!r}: {_tail(text)}")
    return tuple(Element(p.strip()) for p in [*parts, text[start:]] if p.strip())


def _tail(text: str) -> str:
    """Return the end of a text for a message; `...` where it is cut.

    >>> _tail("cse,("), len(_tail("canonicalize," * 9))
    ("'cse,('", 45)
    """
    return repr(text) if len(text) <= _TAIL else f"...{text[-_TAIL:]!r}"


_TAIL = 40


@dataclass(frozen=True)
class Pipeline:
    """A named sequence of steps; an immutable value: every edit returns a new one.

    Attributes:
        name: the pipeline's name.
        steps: in the order in which they run.
        rules: lowering rules of users that hold while it runs; they come from `CompileOptions` and from what is
            registered when a program is compiled.

    >>> steps = Step("tensor", "stablexla-lower-to-tensor,cse"), Step("kernels", "stablexla-group")
    >>> p = Pipeline("tiny", steps)
    >>> print(p.with_step("kernels", "stablexla-group,cse"))
    // tiny
    tensor: builtin.module(stablexla-lower-to-tensor,cse)
    kernels: builtin.module(stablexla-group,cse)
    >>> Pipeline.parse(str(p)) == p
    True
    """

    name: str
    steps: tuple[Step, ...]
    rules: tuple[LoweringRule, ...] = ()

    def __init__(self, name: str, steps: Iterable[Step], rules: Iterable[LoweringRule] = ()) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "steps", tuple(steps))
        object.__setattr__(self, "rules", tuple(rules))
        names = self.names
        for step in names:
            if names.count(step) > 1:
                raise CompileError(f"{name}: two steps are called {step!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """The steps' names in order."""
        return tuple(s.name for s in self.steps)

    def __getitem__(self, name: str) -> Step:
        return self.steps[self.index(name)]

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def index(self, name: str) -> int:
        """Return the index of the step of that name.

        Raises:
            CompileError: there is none.
        """
        if name in self.names:
            return self.names.index(name)
        near = difflib.get_close_matches(name, self.names, n=1) or self.names
        raise CompileError(f"{self.name} has no step {name!r}", hint=" or ".join(near))

    @property
    def is_text(self) -> bool:
        """Whether its text describes it fully: no functions among the passes, and no rules of users."""
        return not self.rules and not any(step.functions for step in self.steps)

    def with_step(self, name: str, passes: Passes, *, leaves: frozenset[str] | None = None) -> Pipeline:
        """Return the pipeline with other passes in one step; the step's `leaves` stays unless it is given."""
        at = self.index(name)
        step = self.steps[at]
        return self._changed(at, Step(step.name, passes, leaves or step.leaves, step.functions))

    def inserting(self, step: Step | Rewrite, *, after: str | None = None, before: str | None = None) -> Pipeline:
        """Return the pipeline with one more step after, or before, that of the given name.

        Args:
            step: a function makes a step of its name.

        Raises:
            CompileError: no such step, or neither or both of `after` and `before`.
        """
        at = self._place(after, before, self.index)
        if not isinstance(step, Step):
            step = Step(re.sub(r"\W+", "-", getattr(step, "__name__", "function")).strip("-") or "function", step)
        return self._with([*self.steps[:at], step, *self.steps[at:]])

    def without(self, name: str) -> Pipeline:
        """Return the pipeline without one of its steps."""
        at = self.index(name)
        return self._with([*self.steps[:at], *self.steps[at + 1 :]])

    def inserting_pass(
        self, passes: Passes, *, after: str | None = None, before: str | None = None, step: str | None = None
    ) -> Pipeline:
        """Return the pipeline with more passes after, or before, the pass of the given name.

        Args:
            passes: as `Step` takes them.
            step: the step that holds the pass; needed when several do.

        Raises:
            CompileError: no such pass, or several.
        """
        owner, at = self._pass(after or before or "", step)
        at += self._place(after, before, lambda name: 0)
        return self._spliced(owner, at, at, passes)

    def replacing_pass(self, name: str, passes: Passes, *, step: str | None = None) -> Pipeline:
        """Return the pipeline with one pass replaced by others."""
        owner, at = self._pass(name, step)
        return self._spliced(owner, at, at + 1, passes)

    def without_pass(self, name: str, *, step: str | None = None) -> Pipeline:
        """Return the pipeline without one pass."""
        return self.replacing_pass(name, (), step=step)

    def with_choices(self, choices: str) -> Pipeline:
        """Return the pipeline with these choices of gates in each of its passes that are written in Python.

        >>> print(Pipeline("tiny", [Step("kernels", "stablexla-group,cse")]).with_choices("eager"))
        // tiny
        kernels: builtin.module(stablexla-group{choices=eager},cse)
        """
        if choices in ("", USUAL):
            return self
        steps = [Step(s.name, ",".join(e.choosing(choices) for e in s.elements), s.leaves, s.functions) for s in self]
        return Pipeline(self.name, steps, self.rules)

    def with_rules(self, *rules: LoweringRule) -> Pipeline:
        """Return the pipeline with more lowering rules; one replaces an older one of the same name."""
        return Pipeline(self.name, self.steps, merged(self.rules, rules))

    def rules_of(self, step: Step) -> list[LoweringRule]:
        """Return the rules that a step may apply."""
        passes = {element.name for element in step.parts}
        return [rule for rule in self.rules if (EMIT if rule.name == SCHEDULES else LOWER) in passes]

    def up_to(self, name: str) -> Pipeline:
        """Return the steps up to and including that of the name."""
        return self._with(self.steps[: self.index(name) + 1])

    def after(self, name: str) -> Pipeline:
        """Return the steps after that of the name."""
        return self._with(self.steps[self.index(name) + 1 :])

    def from_step(self, name: str) -> Pipeline:
        """Return the step of that name and those after it."""
        return self._with(self.steps[self.index(name) :])

    def _with(self, steps: Iterable[Step]) -> Pipeline:
        return Pipeline(self.name, steps, self.rules)

    def _changed(self, at: int, step: Step) -> Pipeline:
        return self._with([*self.steps[:at], step, *self.steps[at + 1 :]])

    def _spliced(self, at: int, start: int, stop: int, passes: Passes) -> Pipeline:
        """Replace the elements from `start` to `stop` of the step number `at` by other passes."""
        step = self.steps[at]
        given = passes if isinstance(passes, Sequence) and not isinstance(passes, str) else [passes]
        texts = [e.text for e in step.elements]
        passes = [*texts[:start], *given, *texts[stop:]]
        return self._changed(at, Step(step.name, passes, step.leaves, step.functions))

    def _place(self, after: str | None, before: str | None, index: Callable[[str], int]) -> int:
        if (after is None) == (before is None):
            raise CompileError("say where: either after=NAME or before=NAME")
        return index(after) + 1 if after is not None else index(before or "")

    def _pass(self, name: str, step: str | None) -> tuple[int, int]:
        """Return the index of the step that holds the pass of that name, and the pass's index in it."""
        numbers = range(len(self.steps)) if step is None else [self.index(step)]
        elements = [(i, j, e.name) for i in numbers for j, e in enumerate(self.steps[i].elements)]
        found = [(i, j) for i, j, its in elements if its == name]
        where = f"the step {step!r}" if step else self.name
        if not found:
            near = difflib.get_close_matches(name, [its for _, _, its in elements], n=3, cutoff=0.5)
            raise CompileError(f"{where} has no pass {name!r}", hint=" or ".join(near))
        if len(found) > 1:
            names = dict.fromkeys(self.steps[i].name for i, _ in found)
            hint = " or ".join(f"step={n!r}" for n in names) if len(names) > 1 else "with_step"
            raise CompileError(f"{where} has {len(found)} passes {name!r}", hint=hint)
        return found[0]

    def __str__(self) -> str:
        rules = [f"// rule {rule}" for rule in self.rules]
        return "\n".join([f"// {self.name}", *map(str, self.steps), *rules])

    def _repr_html_(self) -> str:
        from stablexla.dialects.display.html_table import html_table, html_title

        rows = [(s.name, ", ".join(e.text for e in s.elements), ", ".join(sorted(s.leaves or ()))) for s in self.steps]
        rows += [("rule", str(rule), "") for rule in self.rules]
        return html_title(self.name, f"{len(self)} steps") + html_table(("step", "passes", "leaves"), rows)

    @staticmethod
    def parse(text: str) -> Pipeline:
        """Parse the output of `str()` of a pipeline: a line `// name`, then lines `step: builtin.module(...)`.

        A line may be only the passes, and may end in `-> dialect,dialect` for what the step leaves.

        Raises:
            CompileError: a line that is not of this form.
        """
        name, steps = "pipeline", list[Step]()
        for line in filter(None, map(str.strip, text.splitlines())):
            if line.startswith("//"):
                name = line.removeprefix("//").strip() or name if not steps else name
                continue
            match = re.fullmatch(r"([\w-]+)\s*:\s*(.*?)(?:\s*->\s*([\w.,\s]*))?", line)
            if match is None:
                raise CompileError(f"a pipeline's line is `step: passes`, not {line!r}")
            leaves = None if match[3] is None else frozenset(w.strip() for w in match[3].split(",") if w.strip())
            steps.append(Step(match[1], match[2], leaves))
        return Pipeline(name, steps)
