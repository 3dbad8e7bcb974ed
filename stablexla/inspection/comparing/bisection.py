"""The changes between two pipelines, and the search for the one that breaks a program.

Every change leaves a valid pipeline: steps and passes that only one of the two has, options of passes, and options of
the compilation. When the emitters are at fault, kernels are moved to the general path one by one.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import place_of
from stablexla.dialects.rules import label_of, place_of_function
from stablexla.dialects.symbols import symbol_of
from stablexla.inspection.comparing.findings import Cause, SuspectKernel
from stablexla.inspection.comparing.ways import Compiled
from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.registry import RULES
from stablexla.targets.pipeline.driver import Watcher, copy_of, run_pipeline
from stablexla.targets.pipeline.passes import FUNCTION
from stablexla.targets.pipeline.pipelines import LOWER, Element, Pipeline, Step
from stablexla.targets.registry import find_target

# Whether a way gets a program wrong; None where it does not compile or run.
GoesWrong = Callable[[Compiled], bool | None]
RightAfter = Callable[[hlo_ir.Module], bool | None]
EMIT = ("stablexla-emit-kernels", "stablexla-map-kernels")


@dataclass(frozen=True)
class Change:
    """One difference between two ways of compiling.

    Attributes:
        step: the step that it is in, "" for an option of the compilation.
        what: in words.
        result: the way after it, and all changes before it.
        passes: the name of the pass that came, went or has other options, where it is one.
    """

    step: str
    what: str
    result: Compiled
    passes: str = ""


def minimal_way(way: Compiled) -> Compiled | None:
    """Return the minimal pipeline: no folding, no fusion, no emitters, no threads, no optimisation.

    None for a target without one.
    """
    if (plain := find_target(way.target).plain) is None:
        return None
    pipeline = plain(way.options)
    pipeline = pipeline.with_step("kernels", _with_option(pipeline["kernels"].passes, "stablexla-group", "alone=true"))
    options = replace(way.options, pipeline=None, opt_level=0, num_threads=1)
    return Compiled(Pipeline("plain", pipeline.steps, way.pipeline.rules), options, way.target, "plain")


def _with_option(passes: str, name: str, option: str) -> str:
    return ",".join(f"{name}{{{option}}}" if e.name == name else e.text for e in Step("x", passes).elements)


def up_to_stage(way: Compiled, stage: str) -> Compiled:
    """Return the way up to a stage, "source" for none of it, followed by the minimal pipeline."""
    base = minimal_way(way)
    assert base is not None
    if stage == "source":
        return replace(base, name="source")
    end = way.pipeline.index(stage)
    head = list(way.pipeline.steps[: end + 1])
    common = [s.name for s in head if s.name in base.pipeline]
    tail = base.pipeline.after(common[-1]).steps if common else base.pipeline.steps
    tail = tuple(s for s in tail if s.name not in {h.name for h in head})
    options = replace(base.options, num_threads=1)
    return Compiled(Pipeline(way.pipeline.name, [*head, *tail], way.pipeline.rules), options, way.target, stage)


# ---- from one way to another ---------------------------------------------------------------------------------------


def changes_between(one: Compiled, other: Compiled) -> list[Change]:
    """Return the changes from `one` to `other`, in the order of the steps."""
    found: list[Change] = []
    steps = list(one.pipeline.steps)
    way = one

    def note(step: str, what: str, passes: str = "") -> None:
        nonlocal way
        way = replace(way, pipeline=Pipeline(other.pipeline.name, steps, other.pipeline.rules))
        found.append(Change(step, what, way, passes))

    for kind, i, wanted in _step_edits(one.pipeline, other.pipeline):
        if kind == "insert":
            assert wanted is not None
            for count, element in enumerate(wanted.elements, start=1):
                part = _text(wanted.elements[:count])
                steps[i : i + (count > 1)] = [Step(wanted.name, part, functions=wanted.functions)]
                if count == len(wanted.elements):
                    steps[i] = wanted
                note(wanted.name, f"the pass {element.text} is added", element.text)
        elif kind == "delete":
            gone = steps.pop(i)
            note(gone.name, f"the step '{gone.name}' is left out")
        else:
            assert wanted is not None
            count, functions = len(found), dict(wanted.functions)
            for what, passes, text in _pass_edits(steps[i], wanted):
                steps[i] = Step(wanted.name, text, steps[i].leaves, {**dict(steps[i].functions), **functions}.items())
                note(wanted.name, what, passes)
            steps[i] = wanted
            if len(found) > count:
                way = replace(way, pipeline=Pipeline(other.pipeline.name, steps, other.pipeline.rules))
                found[-1] = replace(found[-1], result=way)
    return [*found, *_option_edits(way, other)]


def _step_edits(one: Pipeline, other: Pipeline) -> Iterator[tuple[str, int, Step | None]]:
    """Return edits of the list of steps, each at its position after the previous ones."""
    at = 0
    codes = difflib.SequenceMatcher(None, one.names, other.names, autojunk=False).get_opcodes()
    for tag, a, b, c, d in codes:
        if tag == "equal":
            for k in range(b - a):
                if one.steps[a + k] != other.steps[c + k]:
                    yield "edit", at, other.steps[c + k]
                at += 1
            continue
        for step in other.steps[c:d]:
            yield "insert", at, step
            at += 1
        for _ in range(b - a):
            yield "delete", at, None


def _pass_edits(one: Step, other: Step) -> Iterator[tuple[str, str, str]]:
    """Return the changes of a step, pass by pass: a description, the pass, and the step's text after it."""
    before, after = list(one.elements), list(other.elements)
    done: list[Element] = []
    codes = difflib.SequenceMatcher(None, _keys(before), _keys(after), autojunk=False).get_opcodes()
    for tag, a, b, c, d in codes:
        rest = before[b:]
        if tag == "equal":
            for k in range(b - a):
                old, new = before[a + k], after[c + k]
                done.append(new)
                if old != new:
                    yield _other_options(old, new), new.text, _text([*done, *before[a + k + 1 :]])
            continue
        gone = before[a:b]
        for new in after[c:d]:
            done.append(new)
            yield f"the pass {new.text} is added", new.text, _text([*done, *gone, *rest])
        for k, old in enumerate(gone):
            yield f"the pass {old.text} is left out", old.text, _text([*done, *gone[k + 1 :], *rest])


def _other_options(old: Element, new: Element) -> str:
    if new.name in EMIT and "general-only" in old.text and "general-only" not in new.text:
        return f"kernels are emitted, by {new.text}, in the place of the general path"
    return f"{new.text} in the place of {old.text}"


def _keys(elements: Sequence[Element]) -> list[str]:
    """Return the keys by which two passes are the same, whatever their options."""
    return [e.text if e.name == FUNCTION or (e.text != e.name and "(" in e.text) else e.name for e in elements]


def _text(elements: Sequence[Element]) -> str:
    return ",".join(e.text for e in elements)


def _option_edits(one: Compiled, other: Compiled) -> Iterator[Change]:
    way = one
    for option in fields(one.options):
        before, after = (getattr(w.options, option.name) for w in (one, other))
        if option.name == "pipeline" or before == after:
            continue
        way = replace(way, options=replace(way.options, **{option.name: after}))
        yield Change("", f"{option.name}={after!r} in the place of {before!r}", way)


def first_breaking_change(changes: Sequence[Change], goes_wrong: GoesWrong) -> tuple[Change | None, int]:
    """Return the first change that makes the program wrong, and the number of pipelines tried.

    The program is right before the first change, and wrong after the last.
    """
    low, high = -1, len(changes) - 1
    tried = 0
    while high - low > 1:
        middle = (low + high) // 2
        answer = goes_wrong(changes[middle].result)
        tried += 1
        if answer is None:  # such a pipeline does not run: adjacent ones may
            return _one_by_one(changes, low, high, goes_wrong, tried)
        low, high = (low, middle) if answer else (middle, high)
    return changes[high] if changes else None, tried


def _one_by_one(
    changes: Sequence[Change], low: int, high: int, goes_wrong: GoesWrong, tried: int
) -> tuple[Change | None, int]:
    for i in range(low + 1, high):
        tried += 1
        if goes_wrong(changes[i].result):
            return changes[i], tried
    return changes[high], tried


# ---- kernels -------------------------------------------------------------------------------------------------------


class _KernelWatcher(Watcher):
    """Records the kernels, the places of their operations, and whether they are emitted."""

    pass_by_pass = True

    def __init__(self) -> None:
        self.kernels: list[SuspectKernel] = []

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        functions = [v.operation for v in module.body.operations if KIND in v.operation.attributes]
        if element.name in EMIT:
            calls = _calls(module)
            self.kernels = [_part(f, calls.get(symbol_of(f), [])) for f in functions]


def kernels_of(way: Compiled, module: hlo_ir.Module) -> list[SuspectKernel]:
    """Return the kernels of a program compiled in some way."""
    watcher = _KernelWatcher()
    steps = way.pipeline.up_to("buffers") if "buffers" in way.pipeline else way.pipeline
    run_pipeline(copy_of(module), steps, watcher=watcher)
    return watcher.kernels


def _calls(module: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}

    def note(op: Any) -> Any:
        if op.name == "func.call":
            found.setdefault(ir.FlatSymbolRefAttr(op.attributes["callee"]).value, []).append(op.location)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    return found


def _part(function: Any, callers: list[Any]) -> SuspectKernel:
    places: dict[str, None] = {}

    def note(op: Any) -> Any:
        place = place_of(op.location)
        if place.is_known:
            places[str(place)] = None
        return ir.WalkResult.ADVANCE

    function.walk(note)
    for location in callers:
        if place_of(location).is_known:
            places[str(place_of(location))] = None
    return SuspectKernel(
        symbol_of(function), ir.StringAttr(function.attributes[KIND]).value, _path(function), tuple(places)
    )


def _path(function: Any) -> str:
    from stablexla.targets.codegen.calls import IMPL, KernelCall

    if IMPL not in function.attributes:
        return ""
    return KernelCall.of(function).path


def bad_kernel(way: Compiled, module: hlo_ir.Module, goes_wrong: GoesWrong) -> tuple[SuspectKernel | None, int]:
    """Return the kernel whose emitter is wrong: with it on the general path the program is right."""
    kernels = [k for k in kernels_of(way, module) if k.path == "emitted"]
    low, high, tried = 0, len(kernels), 0  # with the first `low` emitted it is right, with `high` wrong
    while high - low > 1:
        middle = (low + high) // 2
        tried += 1
        if goes_wrong(with_general(way, [k.name for k in kernels[middle:]])):
            high = middle
        else:
            low = middle
    return (kernels[high - 1], tried) if kernels else (None, tried)


def with_general(way: Compiled, names: Sequence[str]) -> Compiled:
    """Return the way with some kernels on the general path."""
    step = way.pipeline["buffers"]
    elements = [_general(e, names) if e.name in EMIT else e.text for e in step.elements]
    return replace(way, pipeline=way.pipeline.with_step("buffers", ",".join(elements)))


def _general(element: Element, names: Sequence[str]) -> str:
    options = {**element.options, "general": ",".join(names)}
    return f"{element.name}{{{' '.join(f'{k}={v}' for k, v in options.items())}}}" if names else element.text


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


def _called(way: Compiled) -> str:
    return "the plain pipeline" if way.name == "plain" else way.name


def cause_of(
    ours: Compiled,
    base: Compiled,
    module: hlo_ir.Module,
    goes_wrong: GoesWrong,
    operation: str,
    right_after: RightAfter,
) -> Cause | None:
    """Return why `ours` is wrong where `base` is right; where both are wrong, their common cause.

    Args:
        ours, base: the ways.
        module: a small program.
        goes_wrong: whether a way gets the program wrong.
        operation: the name of the operation that is wrong.
        right_after: whether another implementation gives the right results for a changed program, None if it cannot.
    """
    if not goes_wrong(ours):
        return None
    answer = goes_wrong(base)
    if answer is None:
        return None
    if answer:
        return _shared_cause(ours, base, module, operation, right_after)
    changes = changes_between(base, ours)
    change, tried = first_breaking_change(changes, goes_wrong)
    if change is None:
        return None
    kernel = None
    if change.passes.startswith(EMIT) and "general-only" not in change.passes:
        kernel, more = bad_kernel(change.result, module, goes_wrong)
        tried += more
    note = f"right by {_called(base)} and all changes up to this one, wrong with it"
    return Cause(change.step, change.what, kernel, "", note, tried + 2)


def _shared_cause(
    ours: Compiled, base: Compiled, module: hlo_ir.Module, operation: str, right_after: RightAfter
) -> Cause:
    """Return the first pass on StableHLO that changes the program's meaning, or else the lowering rule."""
    copy = copy_of(module)
    for step in base.pipeline:
        for element in step.elements:
            if element.name == LOWER:
                note = f"{_called(base)} gets it wrong as well, which shares the lowering of the operation"
                return Cause("tensor", rule=rule_of(ours, operation), note=note, tried=2)
            one = Step(step.name, element.text, functions=step.functions)
            copy = run_pipeline(copy, Pipeline(step.name, [one], base.pipeline.rules))
            if right_after(copy) is False:
                what = f"the pass {element.text} changes what the program means"
                return Cause(step.name, what, note="as another implementation runs what the pass leaves", tried=2)
    return Cause(note=f"{_called(base)} gets it wrong as well", tried=2)
