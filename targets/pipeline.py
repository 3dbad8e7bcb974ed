"""Pipelines as values: named steps, each a text of passes, that can be printed, compared, cut and changed.

What runs them is in `driver.py`; what the passes written in Python are is in `passes.py`.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from stablexla.dialects.errors import CompileError
from stablexla.targets.passes import PREFIX

LOWER = "stablexla-lower-to-tensor"
"""The pass at which a module changes from StableHLO's context to upstream's."""


@dataclass(frozen=True)
class Element:
    """One element of a pipeline's text: a pass with its options, or a nest such as `func.func(cse)`."""

    text: str

    @property
    def name(self) -> str:
        """The pass's name, or the operation that a nest is for."""
        return re.split(r"[({]", self.text, maxsplit=1)[0].strip()

    @property
    def is_python(self) -> bool:
        """Whether it names a pass written in Python."""
        return self.name.startswith(PREFIX)

    @property
    def options(self) -> dict[str, str]:
        """Options of a pass written in Python."""
        inside = self.text[len(self.name) :].strip()
        if not inside:
            return {}
        if not (inside.startswith("{") and inside.endswith("}")):
            raise CompileError(f"the options of {self.name} must stand in braces, not {inside!r}")
        return dict(_option(self.name, word) for word in inside[1:-1].split())


def _option(name: str, word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    return key, value if equals else "true"


@dataclass(frozen=True)
class Step:
    """A named part of a pipeline; its name is the name of the stage that the program is in after it.

    Attributes:
        name: a word.
        passes: elements as `mlir-opt --pass-pipeline` takes them inside `builtin.module(...)`, and among them
            registered passes that are written in Python.
        leaves: dialects (`arith`) and operations (`builtin.module`) that may be there after the step;
            None checks nothing.
    """

    name: str
    passes: str
    leaves: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z][\w-]*", self.name):
            raise CompileError(f"{self.name!r} is no name for a step: one word, please")
        text = self.passes.strip()
        if text.startswith("builtin.module(") and len(split(text)) == 1:
            text = text.removeprefix("builtin.module(").removesuffix(")")
        text = ",".join(e.text for e in split(text))
        object.__setattr__(self, "passes", text)
        if self.leaves is not None:
            object.__setattr__(self, "leaves", frozenset(self.leaves))

    @property
    def elements(self) -> tuple[Element, ...]:
        """The passes one by one."""
        return tuple(split(self.passes))

    @property
    def text(self) -> str:
        """The step as `stablexla-opt --pass-pipeline` takes it."""
        return f"builtin.module({self.passes})"

    def runs(self) -> Iterator[tuple[bool, tuple[Element, ...]]]:
        """The elements in the longest runs for one pass manager; a pass written in Python is a run of its own.

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


def split(text: str) -> list[Element]:
    """Splits a text of passes at its outermost commas.

    Raises:
        CompileError: brackets that do not match.

    >>> [e.name for e in split("cse, func.func(cse,canonicalize{top-down=1}), stablexla-outline{max=2}")]
    ['cse', 'func.func', 'stablexla-outline']
    """
    return list(_split(text))


@functools.lru_cache(maxsize=512)
def _split(text: str) -> tuple[Element, ...]:
    closing = {"(": ")", "{": "}", "[": "]", "<": ">"}
    parts, start, open_ = [], 0, []
    for at, c in enumerate(text):
        if c in closing:
            open_.append(closing[c])
        elif c in closing.values():
            if not open_ or open_.pop() != c:
                raise CompileError(f"the brackets of a pipeline do not match at {text[: at + 1][-40:]!r}")
        elif c == "," and not open_:
            parts.append(text[start:at])
            start = at + 1
    if open_:
        raise CompileError(f"the pipeline ends before its {open_[-1]!r}: {text[-40:]!r}")
    return tuple(Element(p.strip()) for p in [*parts, text[start:]] if p.strip())


@dataclass(frozen=True)
class Pipeline:
    """A named sequence of steps; a value: every change makes another one.

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

    def __init__(self, name: str, steps: Iterable[Step]) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "steps", tuple(steps))
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
        """Where the step of that name stands.

        Raises:
            CompileError: there is none.
        """
        if name in self.names:
            return self.names.index(name)
        near = difflib.get_close_matches(name, self.names, n=1) or self.names
        raise CompileError(f"{self.name} has no step {name!r}", hint=" or ".join(near))

    def with_step(self, name: str, passes: str | Sequence[str], *, leaves: frozenset[str] | None = None) -> Pipeline:
        """The pipeline with other passes in one step; what the step leaves stays unless it is given."""
        at = self.index(name)
        text = passes if isinstance(passes, str) else ",".join(passes)
        step = replace(self.steps[at], passes=text, leaves=leaves or self.steps[at].leaves)
        return Pipeline(self.name, [*self.steps[:at], step, *self.steps[at + 1 :]])

    def inserting(self, step: Step, *, after: str) -> Pipeline:
        """The pipeline with one more step after that of the name `after`."""
        at = self.index(after) + 1
        return Pipeline(self.name, [*self.steps[:at], step, *self.steps[at:]])

    def without(self, name: str) -> Pipeline:
        """The pipeline without one of its steps."""
        at = self.index(name)
        return Pipeline(self.name, [*self.steps[:at], *self.steps[at + 1 :]])

    def up_to(self, name: str) -> Pipeline:
        """The steps up to and with that of the name."""
        return Pipeline(self.name, self.steps[: self.index(name) + 1])

    def after(self, name: str) -> Pipeline:
        """The steps that follow that of the name."""
        return Pipeline(self.name, self.steps[self.index(name) + 1 :])

    def from_step(self, name: str) -> Pipeline:
        """The step of that name and those that follow it."""
        return Pipeline(self.name, self.steps[self.index(name) :])

    def __str__(self) -> str:
        return "\n".join([f"// {self.name}", *map(str, self.steps)])

    @staticmethod
    def parse(text: str) -> Pipeline:
        """Reads what `str()` of a pipeline writes: a line `// name`, then `step: builtin.module(...)` a line.

        A line may be only the passes, and may end in `-> dialect,dialect` for what the step leaves.

        Raises:
            CompileError: a line that is not of this form.
        """
        name, steps = "pipeline", []
        for line in filter(None, map(str.strip, text.splitlines())):
            if line.startswith("//"):
                name = line.removeprefix("//").strip() or name
                continue
            match = re.fullmatch(r"([\w-]+)\s*:\s*(.*?)(?:\s*->\s*([\w.,\s]*))?", line)
            if match is None:
                raise CompileError(f"a pipeline's line is `step: passes`, not {line!r}")
            leaves = None if match[3] is None else frozenset(w.strip() for w in match[3].split(",") if w.strip())
            steps.append(Step(match[1], match[2], leaves))
        return Pipeline(name, steps)
