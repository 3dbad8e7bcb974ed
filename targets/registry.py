"""The targets by name: a pipeline, and what loads the result of it.

A target is imported when it is first compiled for: who only builds or reads programs does not wait for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stablexla.dialects.errors import CompileError
from stablexla.dialects.rules import in_scope, merged
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.signature.signature import Signature


@dataclass(frozen=True)
class Target:
    """What a program can be compiled for.

    Attributes:
        name: as `sx.compile(target=...)` takes it.
        pipeline: the steps for given options.
        load: makes the last step's module callable: a function of arrays with `execute(sequence)` and `__call__`.
        texts: for stages that are read as something else than MLIR, what gives their text.
        is_saved: what `load` gives can be written to a file, and so be kept in a cache.
    """

    name: str
    pipeline: Callable[[CompileOptions], Pipeline]
    load: Callable[[Any, Signature, CompileOptions], Any]
    texts: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    is_saved: bool = True


def _cpu() -> Target:
    from stablexla.targets.cpu.pipeline import cpu_pipeline
    from stablexla.targets.llvm.engine import load

    return Target("cpu", cpu_pipeline, load)


def _gpu(text: str) -> Target:
    from stablexla.targets.gpu.target import gpu_target

    return gpu_target(text)


def pipeline_of(target: Target, options: CompileOptions) -> Pipeline:
    """The steps that a program is compiled with here and now: the user's or the target's, with the rules that hold."""
    pipeline = target.pipeline(options) if options.pipeline is None else options.pipeline
    rules = merged(in_scope(), pipeline.rules, options.rules)
    return Pipeline(pipeline.name, pipeline.steps, rules) if rules else pipeline


TARGETS: dict[str, Callable[[str], Target]] = {"cpu": lambda text: _cpu(), "gpu": _gpu}
"""What makes each target of the whole text that names it: `gpu:sm_90` is a target `gpu`."""


def find_target(name: str) -> Target:
    """The target of that name; `gpu` alone is for the GPU that is there.

    Raises:
        CompileError: there is none.
    """
    kind, colon, _ = str(name).partition(":")
    if kind not in TARGETS or (colon and kind == "cpu"):
        near = difflib.get_close_matches(str(name), TARGETS, n=1) or list(TARGETS)
        raise CompileError(f"there is no target {name!r}", hint=" or ".join(f'target="{n}"' for n in near))
    return TARGETS[kind](name)
