"""The two sides of a comparison: program and arguments as both get them, and the reference by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.dialects.rules import CUSTOM_CALL, merged
from stablexla.executable.executable import Executable
from stablexla.inspection.comparing.bisection import UPSTREAM, minimal_way, up_to_stage, upstream_way
from stablexla.inspection.comparing.ways import Compiled, Way
from stablexla.inspection.judging.oracles import NAMES, shared_oracle
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import LOWER, Pipeline, Step
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.runtime.arguments import fit_at
from stablexla.targets.stablehlo.imports.shapes.refinement import SHAPES

Array = npt.NDArray[Any]
IMPORTS = (
    "stablexla-drop-shardings",
    "stablexla-refine-shapes",
    "stablexla-expand-ragged-exchanges",
    "stablexla-legalize-quantized",
)
Against = Any
"""An oracle's name, a stage, a `Pipeline`, `CompileOptions` or another `Executable`."""


def way_of(executable: Executable) -> Compiled:
    """Return how an executable was compiled, for other programs."""
    options = executable._compile_options or CompileOptions()
    plain = replace(options, pipeline=None, rules=(), schedules=None)
    return Compiled(executable._pipeline_again(), plain, executable.target)


def arrays_of(executable: Executable, arguments: Sequence[Any]) -> list[Array]:
    """Return the arguments as arrays, the leaves of tuples one by one.

    Raises:
        ExecutionError: they do not fit, or their sizes are known only at run time.
    """
    if not executable._signature.is_static:
        raise ExecutionError(f"{executable.name}: programs with sizes at run time are not compared")
    leaves: list[Any] = list(arguments) if executable._tree is None else executable._tree.arguments(list(arguments))
    specs = executable.parameters
    if len(leaves) != len(specs):
        raise ExecutionError(f"{executable.name}: takes {len(specs)} argument(s), but {len(leaves)} came")
    fitted = (fit_at(a, spec, f"{executable.name}: parameter {i}") for i, (a, spec) in enumerate(zip(leaves, specs)))
    return [np.asarray(a) for a in fitted]


def imported(way: Compiled, source: ir.Module) -> tuple[Compiled, ir.Module]:
    """Return the program with static shapes and plain types, as both sides get it, and the steps from there."""
    steps = list(way.pipeline.steps)
    first = [steps.pop(0)] if steps[0].name == SHAPES else []
    passes = [e.text for s in steps[:1] for e in s.elements if e.name in IMPORTS]
    imports = [*first, *([Step("imports", passes)] if passes else [])]
    made: ir.Module = run_pipeline(source, Pipeline("imports", imports))
    return replace(way, pipeline=Pipeline(way.pipeline.name, steps, way.pipeline.rules)), made


def other_way(ours: Compiled, against: Against) -> Way:
    """Return the reference that `against` names.

    Raises:
        CompileError: there is no such thing.
    """
    if isinstance(against, str) and against in NAMES:
        oracle = shared_oracle(NAMES[against])
        oracle.start()  # it does so while we compile
        return oracle
    return _way_of_ours(ours, against)


def _way_of_ours(ours: Compiled, against: Against) -> Compiled:
    if isinstance(against, Executable):
        return replace(way_of(against), name=_name(against.pipeline, ours, "the other executable"))
    if isinstance(against, CompileOptions):
        pipeline = pipeline_of(find_target(ours.target), against)
        return Compiled(pipeline, replace(against, pipeline=None), ours.target, _name(pipeline, ours, repr(against)))
    if isinstance(against, Pipeline):
        return _usual(replace(ours, pipeline=against, name=_name(against, ours, "the other pipeline")), ours)
    if against == UPSTREAM:
        return _usual(upstream_way(), ours)
    base = minimal_way(ours)
    if base is not None and against == "plain":
        return _usual(base, ours)
    if base is not None and (against == "source" or against in ours.pipeline):
        head = [] if against == "source" else ours.pipeline.up_to(against).steps
        is_lowered = any(element.name == LOWER for step in head for element in step.elements)
        way = up_to_stage(ours, str(against))
        return way if is_lowered else _usual(way, ours)
    stages = ["source", *ours.pipeline.names] if base is not None else []
    raise CompileError(
        f"nothing can be compared with {against!r}",
        hint=" or ".join(["interpreter", "xla", UPSTREAM, "plain", *stages]),
    )


def _usual(way: Compiled, ours: Compiled) -> Compiled:
    """Return a reference without the user's rules, which are what is judged; custom calls have no others."""
    calls = [rule for rule in ours.pipeline.rules if rule.name.startswith(CUSTOM_CALL)]
    rules = merged(calls, way.pipeline.rules if way.pipeline.rules != ours.pipeline.rules else ())
    return replace(way, pipeline=Pipeline(way.pipeline.name, way.pipeline.steps, rules))


def rules_note(ours: Compiled, other: Way) -> tuple[str, ...]:
    """Return what to say of the user's rules that one of the two sides has alone."""
    theirs = other.pipeline.rules if isinstance(other, Compiled) else ()
    alone = [str(rule) for rule in ours.pipeline.rules if rule not in theirs]
    others = [str(rule) for rule in theirs if rule not in ours.pipeline.rules]
    said = [
        (alone, f"the program has, and {other.name} has not"),
        (others, f"{other.name} has, and the program has not"),
    ]
    return tuple(f"rules that {who}: {', '.join(rules)}" for rules, who in said if rules)


def overrides_note(executable: Executable) -> tuple[str, ...]:
    """Return what to say of the user's texts of stages, without which operations are judged."""
    files = ", ".join(executable._overrides)
    without = "operations are judged, and the reference is made, without them"
    return (f"the program runs with STABLEXLA_OVERRIDE's {files}; {without}",) if files else ()


def _name(pipeline: Pipeline, ours: Compiled, otherwise: str) -> str:
    return f"pipeline '{pipeline.name}'" if pipeline.name != ours.pipeline.name else otherwise
