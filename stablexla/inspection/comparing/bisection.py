"""The search for what breaks a program: the first pass after which no way leads to the right results any more.

Behind each of our passes a program is continued in several ways that share little: the minimal pipeline, its barest
form, and upstream's own passes. What one of them gets right was right so far. A change is blamed only if one and the
same way goes right without it and wrong with it; otherwise the cause counts as not found.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.errors import StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import place_of
from stablexla.dialects.rules import label_of, place_of_function
from stablexla.dialects.symbols import symbol_of
from stablexla.inspection.comparing.findings import Cause, SuspectKernel
from stablexla.inspection.comparing.ways import Compiled, Way
from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import operations_named, walk
from stablexla.lowering.support.registry import RULES
from stablexla.targets.pipeline.driver import Watcher, copy_of, run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.passes import FUNCTION
from stablexla.targets.pipeline.pipelines import LOWER, Element, Pipeline, Step
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.stablehlo.inlining import operations_of

# Whether a way gets a program wrong; None where it does not compile or run.
GoesWrong = Callable[[Way], bool | None]
Row = tuple[Step, Element]
EMIT = ("stablexla-emit-kernels", "stablexla-map-kernels")
UPSTREAM = "upstream"
"""The target that has nothing of the others' emitters and runtime."""
MATH, LIBM = "stablexla-expand-math", "convert-math-to-libm"
NEEDED = {
    "stablexla-note-sizes": "",
    "stablexla-lower-views": "",
    "stablexla-expand-small-floats": r"f[468]E\d|(?<!b)f16",
    "stablexla-bf16-as-bits": "bf16",
}
"""Passes of the step `llvm` written in Python, and the types without which they can be left out, as all others can."""


@dataclass(frozen=True)
class Change:
    """One difference between two ways of compiling.

    Attributes:
        step: the step that it is in, "" for an option of the compilation.
        what: in words.
        result: the way after it, and all changes before it.
        passes: the text of the pass that came, went or has other options, where it is one.
        done: how many passes of the other way are at their places, changed options of the compilation counted on;
            0 for the rules of the user.
    """

    step: str
    what: str
    result: Compiled
    passes: str = ""
    done: int = 0


# ---- ways that share little with ours --------------------------------------------------------------------------------


def minimal_way(way: Compiled) -> Compiled | None:
    """Return the minimal pipeline: no folding, no fusion, no emitters, no threads, no optimisation.

    None for a target without one.
    """
    if (plain := find_target(way.target).plain) is None:
        return None
    pipeline = plain(way.options)
    pipeline = _with_pass(pipeline, "kernels", "stablexla-group", "stablexla-group{alone=true}")
    options = replace(way.options, pipeline=None, opt_level=0, num_threads=1)
    return Compiled(Pipeline("plain", pipeline.steps, way.pipeline.rules), options, way.target, "plain")


def barest_way(minimal: Compiled, types: str) -> Compiled | None:
    """Return the minimal pipeline of the CPU with memory that no two arrays share, libm's functions, and none of the
    passes in the step `llvm` that can be left out for a program of these types, a text."""
    if minimal.target != "cpu":
        return None
    name = "stablexla-assign-buffers"
    pipeline = _with_pass(minimal.pipeline, "buffers", name, f"{name}{{num-threads=1 guard=apart}}")
    pipeline = _with_pass(_without_passes(pipeline, types), "llvm", MATH, LIBM)
    return replace(minimal, pipeline=pipeline, name="barest")


def upstream_way(rules: Sequence[Any] = ()) -> Compiled:
    """Return the target `upstream`."""
    pipeline = pipeline_of(find_target(UPSTREAM), CompileOptions())
    return Compiled(Pipeline(pipeline.name, pipeline.steps, tuple(rules)), CompileOptions(), UPSTREAM, UPSTREAM)


def _upstream_with_libm(rules: Sequence[Any], types: str) -> Compiled:
    way = upstream_way(rules)
    wrappers = f"func.func(llvm-request-c-wrappers),{LIBM}"  # in this order: libm's functions have none
    pipeline = _with_pass(_without_passes(way.pipeline, types.replace("bf16", "")), "llvm", "func.func", wrappers)
    return replace(way, pipeline=_with_pass(pipeline, "llvm", MATH, ""))


def _without_passes(pipeline: Pipeline, types: str) -> Pipeline:
    def is_kept(element: Element) -> bool:
        needed = NEEDED.get(element.name)
        return element.name == MATH or not element.is_python or (needed is not None and bool(re.search(needed, types)))

    return pipeline.with_step("llvm", ",".join(e.text for e in pipeline["llvm"].elements if is_kept(e)))


def _with_pass(pipeline: Pipeline, step: str, name: str, text: str) -> Pipeline:
    texts = (text if e.name == name else e.text for e in pipeline[step].elements)
    return pipeline.with_step(step, ",".join(filter(None, texts)))


def up_to_stage(way: Compiled, stage: str) -> Compiled:
    """Return the way up to a stage, "source" for none of it, followed by the minimal pipeline."""
    base = minimal_way(way)
    assert base is not None
    head = () if stage == "source" else way.pipeline.up_to(stage).steps
    done = sum(len(step.elements) for step in head)
    return replace(way_behind(base, changes_between(base, way), done), name=stage)


# ---- from one way to another -----------------------------------------------------------------------------------------


def changes_between(one: Compiled, other: Compiled) -> list[Change]:
    """Return the changes from `one` to `other`, pass by pass and then option by option; each leaves a valid way."""
    rows, at = _rows(one.pipeline), 0
    found: list[Change] = []
    way = one
    if one.pipeline.rules != other.pipeline.rules:
        way = replace(way, pipeline=Pipeline(one.pipeline.name, one.pipeline.steps, other.pipeline.rules))
        found.append(Change("tensor", "", way))
    for old, new in _edits(one.pipeline, other.pipeline):
        if new is None:
            assert old is not None
            rows.pop(rows.index(old, at))
            what = f"the pass {old[1].text} is left out"
        else:
            rows[at : at + (old is not None)] = [new]
            at += 1
            if old is not None and old[1] == new[1]:
                continue
            what = f"the pass {new[1].text} is added" if old is None else _other_options(old[1], new[1])
        step, element = new or old or rows[0]
        way = replace(way, pipeline=Pipeline(other.pipeline.name, _steps(rows), other.pipeline.rules))
        found.append(Change(step.name, what, way, element.text, at))
    if found:
        way = replace(way, pipeline=other.pipeline)
        found[-1] = replace(found[-1], result=way)
    for option in fields(one.options):
        before, after = (getattr(w.options, option.name) for w in (one, other))
        if option.name != "pipeline" and before != after:
            at += 1
            way = replace(way, options=replace(way.options, **{option.name: after}))
            found.append(Change("", f"{option.name}={after!r} in the place of {before!r}", way, done=at))
    return found


def _rows(pipeline: Pipeline) -> list[Row]:
    return [(step, element) for step in pipeline.steps for element in step.elements]


def _steps(rows: Sequence[Row]) -> Iterator[Step]:
    for name, group in groupby(rows, key=lambda row: row[0].name):
        held = list(group)
        functions = {label: function for step, _ in held for label, function in step.functions}
        made = Step(name, ",".join(element.text for _, element in held), functions=functions.items())
        yield next((step for step, _ in held if step.passes == made.passes), made)


def _edits(one: Pipeline, other: Pipeline) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield each row of `other` with that of `one` in its place, None for a new one; those that go with None."""
    before, after = _rows(one), _rows(other)
    place, order = -1.0, dict[str, float]()  # of steps, those that `other` lacks behind the one that they follow
    for name in one.names:
        place = float(other.index(name)) if name in other else place + 0.5
        order[name] = place
    order |= {name: float(i) for i, name in enumerate(other.names)}
    one_keys, other_keys = ([_key(*row) for row in rows] for rows in (before, after))
    for tag, a, b, c, d in difflib.SequenceMatcher(None, one_keys, other_keys, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(before[a:b], after[c:d], strict=True)
            continue
        edits: list[tuple[float, Row | None, Row | None]] = [(order[new[0].name], None, new) for new in after[c:d]]
        edits += [(order[old[0].name], old, None) for old in before[a:b]]
        yield from (edit[1:] for edit in sorted(edits, key=lambda edit: (edit[0], edit[2] is None)))


def _key(step: Step, element: Element) -> tuple[str, str]:
    """Return the key by which two passes are the same, whatever their options."""
    is_whole = element.name == FUNCTION or (element.text != element.name and "(" in element.text)
    return step.name, element.text if is_whole else element.name


def _other_options(old: Element, new: Element) -> str:
    if new.name in EMIT and "general-only" in old.text and "general-only" not in new.text:
        return f"kernels are emitted, by {new.text}, in the place of the general path"
    return f"{new.text} in the place of {old.text}"


def way_behind(base: Compiled, changes: Sequence[Change], done: int) -> Compiled:
    """Return the way that goes on as `base` does behind so many passes of the other one."""
    return next((change.result for change in reversed(changes) if change.done <= done), base)


BASE = -1
"""Where none of the changes are made."""


class Ladder:
    """Our passes one by one, and the ways on from behind each of them.

    Attributes:
        tried: how many pipelines were compiled.
        last_right: the step of the last of our passes behind which any way goes right; "" where none does.
    """

    def __init__(self, ours: Compiled, bases: Sequence[Compiled], goes_wrong: GoesWrong) -> None:
        self._goes_wrong = goes_wrong
        self._known: dict[int, bool | None] = {}
        self._changes = [(base, changes_between(base, ours)) for base in bases]
        self.tried, self.last_right = 0, ""
        self._steps = [step.name for step, _ in _rows(ours.pipeline)]
        self._buffers = self._steps.index("buffers") if "buffers" in self._steps else len(self._steps)

    def first_breaking(self) -> tuple[Compiled, Change] | None:
        """Return a way that goes right without a change and wrong with it, and the change: the first for which no other
        way goes right; None where there is none, or no way goes right at all."""
        rungs = [BASE, *sorted({change.done for _, changes in self._changes for change in changes})]
        if self._at(BASE) is not False:
            return None
        low, high = 0, len(rungs) - 1
        while high - low > 1:
            nearest = sorted(range(low + 1, high), key=lambda i: abs(2 * i - low - high))
            middle = next((i for i in nearest if self._at(rungs[i]) is not None), None)
            if middle is None:
                break
            low, high = (low, middle) if self._at(rungs[middle]) else (middle, high)
        if (found := self._between(rungs[low], rungs[high])) is None and 0 < rungs[low] <= len(self._steps):
            self.last_right = self._steps[rungs[low] - 1]
        return found

    def all_wrong(self) -> bool:
        """Return whether all ways run, upstream's among them, and go wrong from the beginning."""
        answers = [self._wrong(self._way(base, changes, BASE)) for base, changes in self._changes]
        return any(base.target == UPSTREAM for base, _ in self._changes) and all(answers)

    def _at(self, done: int) -> bool | None:
        """Return whether every way on goes wrong; None where none runs."""
        answers = set()
        for base, changes in self._changes:
            answers.add(answer := self._wrong(self._way(base, changes, done)))
            if answer is False:
                return False
        return True if True in answers else None

    def _between(self, right: int, wrong: int) -> tuple[Compiled, Change] | None:
        """Return the change that breaks a way between two rungs."""
        for base, changes in self._changes:
            way = self._way(base, changes, right)
            if self._wrong(way) is not False:
                continue
            for change in changes:
                if right < change.done <= wrong:
                    answer = self._wrong(self._way(base, [change], change.done))
                    if answer is None:
                        break
                    if answer:
                        return change.result, change
        return None

    def _way(self, base: Compiled, changes: Sequence[Change], done: int) -> Compiled | None:
        """Return the way behind so many of our passes; None where it cannot go on from there."""
        if base.target == UPSTREAM and done > self._buffers:
            return None
        return way_behind(base, changes, done)

    def _wrong(self, way: Compiled | None) -> bool | None:
        if way is None:
            return None
        if id(way) not in self._known:
            self.tried += 1
            self._known[id(way)] = self._goes_wrong(way)
        return self._known[id(way)]


# ---- kernels -------------------------------------------------------------------------------------------------------


class _KernelWatcher(Watcher):
    """Records the kernels, the places of their operations, and whether they are emitted."""

    pass_by_pass = True

    def __init__(self) -> None:
        self.kernels: list[SuspectKernel] = []

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        if element.name in EMIT:
            functions = [v.operation for v in module.body.operations if KIND in v.operation.attributes]
            calls = operations_named(module.operation, "func.call")
            callers = [(ir.FlatSymbolRefAttr(call.attributes["callee"]).value, call) for call in calls]
            self.kernels = [_part(f, [op for name, op in callers if name == symbol_of(f)]) for f in functions]


def kernels_of(way: Compiled, module: hlo_ir.Module) -> list[SuspectKernel]:
    """Return the kernels of a program compiled in some way."""
    watcher = _KernelWatcher()
    steps = way.pipeline.up_to("buffers") if "buffers" in way.pipeline else way.pipeline
    run_pipeline(copy_of(module), steps, watcher=watcher)
    return watcher.kernels


def _part(function: Any, calls: Sequence[Any]) -> SuspectKernel:
    from stablexla.targets.codegen.calls import IMPL, KernelCall

    places = [place_of(op.location) for op in (*walk(function), *calls)]
    known = dict.fromkeys(str(place) for place in places if place.is_known)
    path = KernelCall.of(function).path if IMPL in function.attributes else ""
    return SuspectKernel(symbol_of(function), ir.StringAttr(function.attributes[KIND]).value, path, tuple(known))


def bad_kernel(way: Compiled, module: hlo_ir.Module, goes_wrong: GoesWrong) -> tuple[SuspectKernel | None, int]:
    """Return the kernel without whose emitter the program is right, and the number of pipelines tried."""
    kernels = [k for k in kernels_of(way, module) if k.path == "emitted"]
    low, high, tried = 0, len(kernels), 1  # with the first `low` emitted it is right, with `high` wrong
    while high - low > 1:
        middle = (low + high) // 2
        tried += 1
        low, high = (low, middle) if goes_wrong(with_general(way, kernels[middle:])) else (middle, high)
    is_it = bool(kernels) and goes_wrong(with_general(way, [kernels[high - 1]])) is False
    return (kernels[high - 1] if is_it else None), tried


def with_general(way: Compiled, kernels: Sequence[SuspectKernel]) -> Compiled:
    """Return the way with some kernels on the general path."""
    names = ",".join(kernel.name for kernel in kernels)
    texts = []
    for element in way.pipeline["buffers"].elements:
        options = " ".join(f"{key}={value}" for key, value in {**element.options, "general": names}.items())
        texts.append(f"{element.name}{{{options}}}" if names and element.name in EMIT else element.text)
    return replace(way, pipeline=way.pipeline.with_step("buffers", ",".join(texts)))


# ---- all of it -----------------------------------------------------------------------------------------------------


def rule_of(way: Compiled, name: str) -> str:
    """Return the lowering rule of an operation, a user's or the package's own, with its place."""
    own = next((str(rule) for rule in way.pipeline.rules if rule.name == name), "")
    found = RULES.get(name)
    if own or found is None:
        return own
    file, line = place_of_function(found.rule)
    short = os.path.join(*Path(file).parts[-2:]) if file else found.family
    return f"{label_of(found.rule).rsplit(':', 1)[-1]} ({short}:{line})"


def cause_of(
    ours: Compiled,
    other: Way,
    module: hlo_ir.Module,
    goes_wrong: GoesWrong,
    operation: str,
    right_after: Callable[[hlo_ir.Module], bool | None],
) -> Cause | None:
    """Return why `ours` is wrong; None where that is not found.

    Args:
        ours: the way.
        other: the reference.
        module: a small program.
        goes_wrong: whether a way gets the program wrong.
        operation: the name of the operation that is wrong, "" where it is one of several.
        right_after: whether the reference gives the right results for a changed program, None if it cannot.
    """
    if not goes_wrong(ours):
        return None
    if isinstance(other, Compiled):
        bases: list[Compiled | None] = [other]
    else:
        minimal = minimal_way(ours)
        types = str(module)
        bases = [minimal, minimal and barest_way(minimal, types)]
        if not operations_of(module, "stablehlo.while"):  # a wrong one may end the process in upstream's passes
            bases.append(_upstream_with_libm(ours.pipeline.rules, types))
    ladder = Ladder(ours, [base for base in bases if base is not None], goes_wrong)
    if (found := ladder.first_breaking()) is not None:
        way, change = found
        kernel, tried = None, 0
        if change.passes.startswith(EMIT) and "general-only" not in change.passes:
            kernel, tried = bad_kernel(way, module, goes_wrong)
        called = f"the {way.name} pipeline" if way.name in ("plain", "barest") else way.name
        note = f"right by {called} and all changes up to this one, wrong with it"
        rule = "" if change.what else rule_of(ours, operation)
        return Cause(change.step, change.what, kernel, rule, note, ladder.tried + tried + 1)
    if ladder.last_right:
        note = f"right up to the step '{ladder.last_right}' by other ways on; the cause, behind it, was not found"
        return Cause(note=note, tried=ladder.tried + 1)
    return None if isinstance(other, Compiled) else _shared_cause(ours, module, operation, right_after, ladder)


def _shared_cause(
    ours: Compiled,
    module: hlo_ir.Module,
    operation: str,
    right_after: Callable[[hlo_ir.Module], bool | None],
    ladder: Ladder,
) -> Cause | None:
    """Return the pass on StableHLO that changes the program's meaning; else the lowering, where only that is left."""
    copy, is_right = copy_of(module), right_after(module)
    for step, element in _rows(ours.pipeline):
        if not is_right:
            return None
        if element.name == LOWER:
            break
        one = Step(step.name, element.text, functions=step.functions)
        try:
            copy = run_pipeline(copy, Pipeline(step.name, [one], ours.pipeline.rules))
        except StablexlaError:
            return None
        if (is_right := right_after(copy)) is False:
            what = f"the pass {element.text} changes what the program means"
            return Cause(step.name, what, note="as another implementation runs what the pass leaves", tried=2)
    if not ladder.all_wrong() or _SMALL_TYPES.search(str(module)):
        return None
    if not operation:
        return Cause("tensor", f"the pass {LOWER} changes what the program means", note=_SHARED, tried=ladder.tried)
    note = f"{_SHARED}, which shares the lowering of the operation"
    return Cause("tensor", rule=rule_of(ours, operation), note=note, tried=ladder.tried)


_SHARED = "the plain pipeline gets it wrong as well"
_SMALL_TYPES = re.compile(r"\bf[468]E\d")
"""Types that all ways share more than the lowering of."""
