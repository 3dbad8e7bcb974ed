"""Driver of pipelines: runs the steps on a module, and reports a failure as one error with stage and diagnostics.

The pipelines themselves are values (`pipelines.py`); a run's watcher decides what is kept of it (`dump.py`).
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import jaxlib.mlir.ir as hlo_ir
import jaxlib.mlir.passmanager as hlo_passmanager
import mlir.ir as ir
import mlir.passmanager as passmanager

from stablexla.dialects import composites
from stablexla.dialects.caller import warn
from stablexla.dialects.contexts import diagnostics, import_hint, pass_manager, stablehlo_context, upstream_context
from stablexla.dialects.copying import copy_of_module
from stablexla.dialects.erasing import only_ours
from stablexla.dialects.errors import CompileError, StablexlaError, UnsupportedError
from stablexla.dialects.held_arrays import copy_in, holding, with_elements
from stablexla.dialects.rules import active, active_rules, verified
from stablexla.dialects.stopping import look
from stablexla.targets.pipeline.contents import Contents
from stablexla.targets.pipeline.messages import close_pass, messages_of, refused_passes
from stablexla.targets.pipeline.pass_checks import check_elements
from stablexla.targets.pipeline.passes import FUNCTION, PASSES, RESERVED, USERS_EMITTERS, ModulePass, Side, file_of
from stablexla.targets.pipeline.pipelines import LOWER, Element, Pipeline, Step
from stablexla.targets.pipeline.standard_error import captured_stderr

VERIFIES_ALL = False
"""Whether pipelines of this package are trusted as little as those of users; tests turn it on."""


class Watcher:
    """Callbacks around the steps and passes of a run; these do nothing. Steps are numbered from 0."""

    pass_by_pass = False
    """Whether `before_pass` and `after_pass` are called; the passes then run one by one, nested ones too."""

    verify_each: bool | None = None
    """Whether the module is verified after every pass; None leaves it to the driver, False verifies never."""

    def replace(self, number: int, step: Step, module: Any) -> Any:
        """Return the module with which the run continues after a step."""
        return module

    def after_step(self, number: int, step: Step, module: Any, seconds: float) -> None:
        """Called after a step."""

    def before_pass(self, step: Step, element: Element, module: Any) -> None:
        """Called before a pass."""

    def after_pass(self, step: Step, element: Element, module: Any) -> None:
        """Called after a pass."""

    def failed_pass(self, step: Step, element: Element, module: Any) -> None:
        """Called when a pass failed, with the module as it left it, which may not verify."""

    def failed(self, number: int, step: Step, before: Any) -> str:
        """Called when a step failed on the module `before`; returns the path of the reproducer, or ""."""
        return ""


class PassFailure(Exception):
    """Failure of a run of MLIR passes."""

    def __init__(self, messages: list[str], hint: str = "") -> None:
        super().__init__("; ".join(messages))
        self.messages, self.hint = messages, hint


def side_of(module: Any) -> Side:
    """Return the MLIR that a module belongs to."""
    return "stablehlo" if isinstance(module, hlo_ir.Module) else "upstream"


def side_after(pipeline: Pipeline, step: str) -> Side:
    """Return the MLIR that a program belongs to after the step of that name."""
    lowered = any(e.name == LOWER for s in pipeline.up_to(step) for e in s.elements)
    return "upstream" if lowered or all(s.name != "stablehlo" for s in pipeline) else "stablehlo"


def copy_of(module: Any, *, here: bool = False) -> Any:
    """Copy a module in its context, or, with `here`, into this thread's context of the same kind."""
    if here:
        context = stablehlo_context() if side_of(module) == "stablehlo" else upstream_context()
        if context != module.context:
            return copy_in(module, context)
    return copy_of_module(module)


def run_pipeline(
    module: Any,
    pipeline: Pipeline,
    *,
    watcher: Watcher | None = None,
    again: Callable[[], Any] | None = None,
    is_trusted: bool = False,
    holds: bool | None = None,
) -> Any:
    """Run every step and return the last module; `module` itself may be changed.

    Args:
        watcher: callbacks of the run.
        is_trusted: whether the pipeline is one of this package's. Where no rule, emitter or composite kernel of a user
            may take part, the module is then verified after the last of several passes written in Python and before
            MLIR's, and no more.
        again: returns the run's input module once more; with it, a failed run is repeated up to the
            failing pass, so that the error can name it and show its input.
        holds: whether the modules may hold large arrays (`held_arrays.py`): not where their text has to be whole. By
            default where the pipeline is trusted.

    Raises:
        CompileError: a pass failed, or left an operation that the step does not allow.
        StablexlaError: as a pass written in Python raised it.
    """
    with active(pipeline.rules):
        holds = is_trusted if holds is None else holds
        is_trusted = is_trusted and not (VERIFIES_ALL or pipeline.rules or USERS_EMITTERS or composites.REGISTERED)
        token = only_ours.set(is_trusted)
        try:
            with holding(holds):
                module = module if holds else with_elements(module)
                return _run_steps(module, pipeline, watcher or Watcher(), again, is_trusted)
        finally:
            only_ours.reset(token)


class _Held:
    """What the module at hand holds, read when a pass asks for it, and again after the next one that ran."""

    def __init__(self) -> None:
        self._contents: Contents | None = None

    def forget(self) -> None:
        self._contents = None

    def lacks(self, element: Element, module: Any) -> bool:
        """Whether a pass has nothing to do."""
        acts_on = element.bound()[0].acts_on
        if acts_on is None or side_of(module) != "stablehlo":
            return False
        self._contents = self._contents or Contents.of(module)
        return not acts_on(self._contents)


def _run_steps(
    module: Any, pipeline: Pipeline, watcher: Watcher, again: Callable[[], Any] | None, is_trusted: bool
) -> Any:
    held = _Held()
    for number, step in enumerate(pipeline):
        start = perf_counter()
        try:
            module = _run_step(module, step, watcher, held, is_trusted)
            if not is_trusted:
                check_leaves(step, module)
        except PassFailure as failure:
            error = _explain(failure, pipeline, number, watcher, again)
        except CompileError as failure:
            error = _placed(failure, pipeline, number, watcher, again)
        else:
            module = watcher.replace(number, step, module)
            watcher.after_step(number, step, module, perf_counter() - start)
            continue
        raise error
    return module


def _run_step(module: Any, step: Step, watcher: Watcher, held: _Held, is_trusted: bool = False) -> Any:
    if watcher.pass_by_pass:
        return _run_one_by_one(module, step, watcher, held)
    # Between two of our passes the module is not verified, only after the last: a run that fails is repeated pass by
    # pass. MLIR's passes, and those of users, are given verified modules only.
    unverified: Element | None = None
    for is_python, elements in step.runs():
        look()
        if is_python and held.lacks(elements[0], module):
            continue
        if unverified is not None and not (is_python and _is_ours(elements[0])):
            _verify(module, unverified)
            unverified = None
        if [element.name for element in elements] != ["cse"]:  # which only takes away
            held.forget()
        if not is_python:
            _run_mlir(module, elements, False if is_trusted else watcher.verify_each)
            continue
        module = _run_python(module, elements[0])
        if watcher.verify_each is False:
            continue
        if watcher.verify_each or not _is_ours(elements[0]):
            _verify(module, elements[0])
        else:
            unverified = elements[0]
    if unverified is not None:
        _verify(module, unverified)
    return module


def _is_ours(element: Element) -> bool:
    return not element.bound()[0].is_users


def _run_one_by_one(module: Any, step: Step, watcher: Watcher, held: _Held) -> Any:
    for element in step.parts:
        look()
        watcher.before_pass(step, element, module)
        try:
            # Skipped as in a run that nobody watches: patterns that match nothing still fold and reorder constants.
            if not (element.is_python and held.lacks(element, module)):
                held.forget()
                module = _run_alone(module, element, watcher)
        except (PassFailure, StablexlaError):
            watcher.failed_pass(step, element, module)
            raise
        watcher.after_pass(step, element, module)
    return module


def _run_alone(module: Any, element: Element, watcher: Watcher) -> Any:
    if not element.is_python:
        _run_mlir(module, (element,), watcher.verify_each)
        return module
    module = _run_python(module, element)
    if watcher.verify_each is not False:
        _verify(module, element)
    return module


def _run_python(module: Any, element: Element) -> Any:
    found, options = element.bound()
    run = found.bind(options)
    _check_side(found, side_of(module))
    with diagnostics(module.context) as seen:
        try:
            # A pass runs inside its module's context, with an unknown location as the default of new operations.
            kind: Any = hlo_ir if side_of(module) == "stablehlo" else ir
            with module.context, kind.Location.unknown():
                made = run(module)
        except StablexlaError:
            raise
        except RecursionError:
            raise UnsupportedError(
                f"operations nested too deep within one another for {element.name}",
                hint="sys.setrecursionlimit(10_000), before compiling",
            ) from None
        except Exception as error:  # a fault of ours, or of a pass that a user registered
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}  ({place.filename.rsplit('/', 1)[-1]}:{place.lineno})"
            hint = import_hint(error, "jaxlib.mlir" if side_of(module) == "stablehlo" else "mlir")
            raise PassFailure([*messages_of(error, seen), what], hint) from error
    if not isinstance(made, (ir.Module, hlo_ir.Module)):
        raise PassFailure([f"{element.text} gave a {type(made).__name__}, where a pass gives a module or None"])
    return made


def _verify(module: Any, element: Element) -> None:
    """Verify a module after a pass.

    Raises:
        PassFailure: it breaks a rule of its dialects.
    """
    with diagnostics(module.context) as seen:
        try:
            module.operation.verify()
        except (ir.MLIRError, hlo_ir.MLIRError) as error:
            raise PassFailure(
                [f"{element.name} left a module that does not verify", *messages_of(error, seen)]
            ) from None


def _check_side(found: ModulePass, side: Side) -> None:
    if found.side not in (side, None):
        raise CompileError(
            f"{found.name} works on a module of {found.side}'s context, and this one is of {side}'s",
            hint=f"passes before {LOWER} work on StableHLO, those after it on upstream's dialects",
        )


def _run_mlir(module: Any, elements: tuple[Element, ...], verify_each: bool | None = None) -> None:
    # Verifying after every pass would take as long as the passes; a run that fails is repeated pass by pass.
    manager = parse_passes(elements, side_of(module), len(elements) == 1 if verify_each is None else verify_each)
    with diagnostics(module.context) as seen:
        try:
            manager.run(module.operation)
            if verify_each is None and len(elements) > 1:
                module.operation.verify()
        except (ir.MLIRError, hlo_ir.MLIRError) as error:
            raise PassFailure(messages_of(error, seen)) from None
    inlines = any(e.name == "inline" for e in elements) and side_of(module) == "stablehlo"
    if inlines and Contents.of(module).has("func.call"):
        warn("inline left calls in StableHLO, as jaxlib's MLIR does; stablexla-inline-calls inlines them")


def parse_passes(elements: tuple[Element, ...], side: Side, verify_each: bool = True) -> Any:
    """Parse a run of MLIR's passes as a pass manager, which is kept.

    Raises:
        CompileError: a name or an option that MLIR does not know.
    """
    check_elements(elements)
    text = f"builtin.module({','.join(e.text for e in elements)})"
    try:
        return pass_manager(side, text, verify_each=verify_each)
    except ValueError as error:
        hint = close_pass(str(error), side)
        option = "" if hint else "--load=FILE.py"
        hint = hint or "the import of the file that registers it"
        raise CompileError(refused_passes(str(error)), hint=hint, option=option) from None


def check_pipeline(pipeline: Pipeline, side: Side = "stablehlo") -> None:
    """Check that every pass of a pipeline parses, without running any.

    Args:
        side: the MLIR of the module that it begins with.

    Raises:
        CompileError: a pass or an option that does not exist, in the step that the error names.
    """
    for number, step in enumerate(pipeline):
        try:
            for is_python, elements in step.runs():
                if is_python:
                    found, options = elements[0].bound()
                    found.bind(options)
                    _check_side(found, side)
                    side = "upstream" if found.name == LOWER else side
                else:
                    _parse_quietly(elements, side)
        except CompileError as error:
            raise _placed(error, pipeline, number, Watcher(), None) from None


def _parse_quietly(elements: tuple[Element, ...], side: Side) -> None:
    """Run `parse_passes`; text that MLIR prints on standard error about a refused value becomes part of the error."""
    with captured_stderr() as printed:
        try:
            parse_passes(elements, side)
            return
        except CompileError as error:
            refused = error
    said = [re.sub(r"^[^:]*: for the --([\w-]+) option", r"the option \1", line) for line in printed]
    if not said:
        raise refused
    names = ", ".join(e.text for e in elements if "{" in e.text)
    raise CompileError("; ".join(said) + f", in {names}", hint=refused.hint)


def sides_of_pass(name: str) -> tuple[Side, ...]:
    """Return the MLIRs that have a pass of that name."""
    sides: list[Side] = []
    for side, manager, context in (
        ("stablehlo", hlo_passmanager.PassManager, stablehlo_context()),
        ("upstream", passmanager.PassManager, upstream_context()),
    ):
        try:
            manager.parse(f"any({name})", context)
        except ValueError as error:
            if "does not refer to a registered pass" in str(error):
                continue
        sides.append(cast(Side, side))
    return tuple(sides)


def _reserve(name: str) -> None:
    """Raise CompileError for the name of a pass that one of the MLIRs has."""
    sides = sides_of_pass(name)
    if sides:
        raise CompileError(f"the MLIR of {sides[0]} has a pass {name!r} already")


RESERVED.append(_reserve)


def check_leaves(step: Step, module: Any) -> None:
    """Raise CompileError when the module still holds an operation that the step must not leave."""
    if step.leaves is None:
        return
    left: Counter[str] = Counter()
    places: dict[str, str] = {}
    allowed: dict[str, bool] = {"builtin.module": True}
    kind: Any = hlo_ir if side_of(module) == "stablehlo" else ir
    leaves = step.leaves

    def look(op: Any) -> Any:
        name = op.name
        if name not in allowed:
            allowed[name] = name in leaves or name.split(".", 1)[0] in leaves
        if not allowed[name]:
            left[name] += 1
            places.setdefault(name, f"{op.location}: {op.get_asm(skip_regions=True, large_elements_limit=8)}")
        return kind.WalkResult.ADVANCE

    module.operation.walk(look)
    if left:
        what = ", ".join(f"{name} ({count}x)" if count > 1 else name for name, count in left.items())
        raise CompileError(f"left over: {what}", diagnostics=tuple(places[name] for name in list(left)[:3]))


def users_files(step: Step, pipeline: Pipeline) -> list[str]:
    """Return the files of the user's passes, rules and emitters in a step."""
    functions = [rule.function for rule in pipeline.rules_of(step)]
    for element in step.parts:
        if element.name == FUNCTION:
            functions.append(element.bound()[0].function)
        if element.name in PASSES and PASSES[element.name].is_users:
            functions.append(PASSES[element.name].function)
        if element.name in ("stablexla-emit-kernels", "stablexla-map-kernels"):
            functions += USERS_EMITTERS
    files = dict.fromkeys(file_of(function) for function in functions)
    return [str(Path(file).absolute()) for file in files if Path(file).is_file()]


def _reproduced(pipeline: Pipeline, number: int, watcher: Watcher, before: Any) -> dict[str, Any]:
    """Have a reproducer written, if the step's input is known; return what the error says of it."""
    step = pipeline.steps[number]
    path = "" if before is None else watcher.failed(number, step, before)
    return {"reproducer": path, "loads": users_files(step, pipeline) if path else ()}


def _placed(
    error: CompileError, pipeline: Pipeline, number: int, watcher: Watcher, again: Callable[[], Any] | None
) -> CompileError:
    """Add to an error its step and, when the run can be repeated, a reproducer."""
    step = pipeline.steps[number]
    if error.stage:
        return error
    before = _before(pipeline, number, watcher, again)
    return CompileError(
        f"{pipeline.name}: step {number + 1} '{step.name}': {error.summary}",
        stage=step.name,
        diagnostics=error.diagnostics,
        **_reproduced(pipeline, number, watcher, before),
        hint=error.hint,
        option=error.option,
    )


def _explain(
    failure: PassFailure, pipeline: Pipeline, number: int, watcher: Watcher, again: Callable[[], Any] | None
) -> CompileError:
    """Return the error for a failed run of passes, with the name of the failing one."""
    step = pipeline.steps[number]
    before = _before(pipeline, number, watcher, again)
    try:
        culprit = "" if before is None else _culprit(step, copy_of(before))
    except CompileError as of_rule:
        return _placed(of_rule, pipeline, number, watcher, again)
    messages = failure.messages
    if culprit.startswith(LOWER) and active_rules():
        messages = [*messages, f"rules in effect: {', '.join(map(str, active_rules().values()))}"]
    error = CompileError(
        f"{pipeline.name}: step {number + 1} '{step.name}' failed" + (f" in {culprit}" if culprit else ""),
        stage=step.name,
        diagnostics=tuple(messages),
        **_reproduced(pipeline, number, watcher, before),
        hint=failure.hint,
    )
    error.__cause__ = failure.__cause__
    return error


def _before(pipeline: Pipeline, number: int, watcher: Watcher, again: Callable[[], Any] | None) -> Any:
    """Recompute a step's input module; None when that is impossible."""
    if again is None:
        return None
    module = again()
    quiet = Watcher()
    for at, step in enumerate(pipeline.steps[:number]):
        module = watcher.replace(at, step, _run_step(module, step, quiet, _Held()))
    return module


def _culprit(step: Step, module: Any) -> str:
    """Find the failing element of a step by running them one by one.

    Raises:
        CompileError: a user's lowering rule that emits invalid IR.
    """
    for element in step.parts:
        try:
            if element.is_python:
                with verified():
                    module = _run_python(module, element)
                _verify(module, element)  # MLIR's passes may abort on a module that does not verify
            else:
                _run_mlir(module, (element,))
        except CompileError:
            raise
        except (PassFailure, StablexlaError):
            return element.text
    return ""
