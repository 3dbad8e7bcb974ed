"""The targets by name: a pipeline, and the function that loads its result.

A target is a folder `targets/<name>/` with a file `target.py` whose function `target` makes a `Target` of the text
that names it. It is imported when it is first compiled for: building and reading programs does not wait for it. What is
asked before that, `KIND` in the folder's `__init__.py` says (`kinds.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from stablexla.dialects.collector import without_collections
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import in_scope, merged
from stablexla.targets.kinds import PACKAGE, no_target, target_names
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline

if TYPE_CHECKING:  # a program that is in the cache starts without MLIR
    from stablexla.targets.signature.signature import Signature


class Ahead(Protocol):
    """What a target does before its steps are through."""

    @property
    def has_begun(self) -> bool:
        """Whether the module lacks anything by now."""


@dataclass(frozen=True)
class Target:
    """What a program can be compiled for.

    Attributes:
        name: as `sx.compile(target=...)` takes it.
        pipeline: the steps for given options.
        load: makes the last step's module callable: a function of arrays with `execute(sequence)` and `__call__`.
        texts: for stages that are read as something else than MLIR, what gives their text.
        is_saved: what `load` gives can be written to a file, and so be kept in a cache.
        ignores: fields of `CompileOptions` that change nothing of its code, of which a warning tells.
        refuses: fields that it would have to heed and cannot.
        plain: the least that makes a program run: nothing folded or fused, and kernels by the general path alone.
        assignment: makes the `BufferAssignment` of a module's main, as the target's own pass makes it.
        ahead: opened around the target's own steps and `load`, where nobody looks at what is between them: parts of the
            program may be compiled early. It gives what says whether any was.
    """

    name: str
    pipeline: Callable[[CompileOptions], Pipeline]
    load: Callable[[Any, Signature, CompileOptions], Any]
    texts: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    is_saved: bool = True
    ignores: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    plain: Callable[[CompileOptions], Pipeline] | None = None
    assignment: Callable[[Any], Any] | None = None
    ahead: Callable[[CompileOptions], AbstractContextManager[Ahead | None]] = lambda _: nullcontext()


def pipeline_of(target: Target, options: CompileOptions) -> Pipeline:
    """The steps that a program is compiled with here and now: the user's or the target's, with the rules that hold."""
    pipeline = target.pipeline(options) if options.pipeline is None else options.pipeline
    rules = merged(in_scope(), pipeline.rules, options.all_rules)
    return Pipeline(pipeline.name, pipeline.steps, rules) if rules else pipeline


def find_target(name: str) -> Target:
    """The target of that name, as its own `target` reads it; `gpu` alone is for the GPU that is there.

    Raises:
        CompileError: there is none.
    """
    kind = str(name).partition(":")[0]
    module_name = f"{PACKAGE}.{kind}.target"
    is_known = module_name in sys.modules  # without a look into folders, or at the collector, for each compilation
    if not is_known and kind not in target_names():
        raise no_target(name)
    with nullcontext() if is_known else without_collections():
        module = import_module(module_name)
    found: Target = module.target(str(name))
    return found
