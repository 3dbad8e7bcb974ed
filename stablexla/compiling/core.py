"""The core of compilation: one program in this process, without the cache and other processes.

interop/ reads the program, targets/ has the steps and passes; this module combines them. `compiler.py`, the facade,
stands above it, and the cache between the two.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import Any, NamedTuple

import jaxlib.mlir.ir as hlo_ir

from stablexla.builder.computation import XlaComputation
from stablexla.compiling.device_counts import Counts, counts_of, with_counts
from stablexla.compiling.known_shapes import with_known_shapes
from stablexla.compiling.request import BIG, Request, constant_bytes
from stablexla.compiling.staged import StagedText
from stablexla.dialects.caller import warn
from stablexla.dialects.choices import chosen
from stablexla.dialects.contexts import contexts_of_their_own, take_in
from stablexla.dialects.errors import StablexlaError, UnsupportedError
from stablexla.dialects.rules import LoweringRule, each_used, is_one_program, merged
from stablexla.dialects.stopping import stoppable
from stablexla.executable.executable import Executable
from stablexla.interop.loading import Program, load
from stablexla.targets.pipeline.driver import check_pipeline, copy_of, run_pipeline
from stablexla.targets.pipeline.dump import KnobWatcher
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import DEFAULT_TARGET, CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.registry import Target, find_target, pipeline_of
from stablexla.targets.signature.signature import Signature, needs_shapes, signature_of
from stablexla.targets.stablehlo.partition import partitioned


class OpenProgram(NamedTuple):
    """A program with unknown extents, which is compiled when the shapes of its parameters are known."""

    source: hlo_ir.Module
    target: str
    counts: Counts


def compile_watched(request: Request, watcher: type[KnobWatcher] = KnobWatcher) -> Executable | OpenProgram:
    """Compile in this process, with a `watcher` of the pipeline.

    Raises:
        StablexlaError: as `sx.compile`.
    """
    with stoppable(request.options.time_limit), contexts_for(request.program):
        return _compile(request, watcher)


def _compile(request: Request, watch: type[KnobWatcher]) -> Executable | OpenProgram:
    options, given = request.options, given_program(request)
    if isinstance(given, OpenProgram):
        return given
    source, known, signature, target, pipeline, is_lowered = given
    # Partition (SPMD): a program on sharded arrays becomes that of each device.
    sharded = None if is_lowered or signature.num_partitions == 1 else partitioned(copy_of(known))
    module = sharded.module if sharded is not None and known is source else source
    if sharded is not None:
        signature = replace(signature_of(sharded.module), parameter_names=signature.parameter_names)
    watcher = given.watcher(watch)
    with each_used(() if is_lowered else _rules_of_program(pipeline, options)):
        function = _built(module, pipeline, target, signature, options, watcher)
    watcher.finish()
    made = Executable(
        source,
        signature,
        function,
        pipeline,
        target=target.name,
        num_replicas=signature.num_replicas,
        num_partitions=signature.num_partitions,
        computation=request.computation,
        options=options,
        shardings=None if sharded is None else (sharded.inputs, sharded.outputs),
    )
    made._overrides = watcher.overrides
    return made


class GivenProgram(NamedTuple):
    """A program of known shapes as it was read, before any step.

    Attributes:
        source: the module.
        known: the same with the shapes of all arrays.
        signature: its parameters and results.
        target: what it is compiled for.
        pipeline: the steps that it has before it.
        is_lowered: it is the text of a later stage.
    """

    source: hlo_ir.Module
    known: hlo_ir.Module
    signature: Signature
    target: Target
    pipeline: Pipeline
    is_lowered: bool = False

    def watcher(self, kind: type[KnobWatcher]) -> KnobWatcher:
        """Return a watcher of the pipeline."""
        return kind(self.signature.name, self.pipeline, self.source, self.signature if self.is_lowered else None)


def given_program(request: Request) -> GivenProgram | OpenProgram:
    """Read the program that is to be compiled.

    Raises:
        StablexlaError: as `sx.compile`.
    """
    options, target = request.options, find_target(request.target)
    _check_options(target, options)
    lowered = StagedText.of(request.program)
    if lowered is not None:
        target = lowered.target(request.target)
        if (rest := lowered.rest(target, options)) is not None:
            signature, module = lowered.signature(), lowered.module(pipeline_of(target, options))
            return GivenProgram(module, module, signature, target, rest, True)
    source = load(request.program, entry=request.entry)
    counts = counts_of(source, request.num_replicas, request.num_partitions)
    source = known = with_counts(source, counts)
    pipeline = pipeline_of(target, options)
    if options.pipeline is not None:
        check_pipeline(pipeline)
    if needs_shapes(source):
        after = with_known_shapes(source, pipeline)
        if after is None:
            return OpenProgram(source, target.name, counts)
        known = after
    signature = signature_of(known)
    if request.computation is not None:
        signature = replace(signature, parameter_names=leaf_names(request.computation))
    return GivenProgram(source, known, signature, target, pipeline)


def _check_options(target: Target, options: CompileOptions) -> None:
    """Warn of options that change nothing for the target, and refuse those that it would have to heed and cannot."""
    for name in target.ignores:
        if getattr(options, name) not in (None, False):
            warn(f"{name}={getattr(options, name)} changes nothing for the target {target.name}")
    for name in target.refuses:
        if value := getattr(options, name):
            raise UnsupportedError(
                f"the target {target.name} cannot compile with {name}={value!r}: it has nothing of what that changes",
                hint=f'no {name}, or target="{DEFAULT_TARGET}"',
                option=f"no --{name.replace('_', '-')}, or --target={DEFAULT_TARGET}",
            )


def _rules_of_program(pipeline: Pipeline, options: CompileOptions) -> tuple[LoweringRule, ...]:
    """Return the rules that were given for one program; those that are registered are for others too."""
    own = options.pipeline.rules if options.pipeline is not None else ()
    return pipeline.rules if is_one_program() else merged(own, options.all_rules)


def _built(
    module: hlo_ir.Module,
    pipeline: Pipeline,
    target: Target,
    signature: Signature,
    options: CompileOptions,
    watcher: KnobWatcher,
) -> Any:
    """Run the steps on a copy of the module, and load what they make."""

    # What somebody else wrote, a pipeline or a module of a later stage, is looked at more often.
    whole = options.pipeline is not None or watcher.sees_modules
    is_trusted = not whole and isinstance(module, hlo_ir.Module)

    def build() -> Any:
        lowered = run_pipeline(
            copy_of(module),
            pipeline,
            watcher=watcher,
            again=lambda: copy_of(module),
            is_trusted=is_trusted,
            holds=not watcher.sees_modules,
        )
        start = perf_counter()
        with chosen(options.choices or knobs.choices):
            function = target.load(lowered, signature, options)
        watcher.times["machine code"] = perf_counter() - start
        return function

    if whole:
        return build()
    with target.ahead(options) as ahead:
        try:
            return build()
        except StablexlaError as error:
            if ahead is None or not ahead.has_begun:
                raise
            first = str(error)  # the error itself would keep the session
    made = build()  # the error says more where the module is whole
    warn(f"compiled a second time, as the first failed by a fault of the compiler's; please report it: {first}")
    return made


def contexts_for(program: Program) -> AbstractContextManager[None]:
    """Enter contexts for a program: the thread's own, unless its constants would make them too large."""
    return contexts_with_room(constant_bytes(program))


def contexts_with_room(size: int) -> AbstractContextManager[None]:
    """Enter contexts for so many bytes of constants: the thread's own, unless that would make them too large."""
    return nullcontext() if size <= BIG and take_in(size) else contexts_of_their_own()


def leaf_names(computation: XlaComputation) -> tuple[str, ...]:
    """Return a name for each array among the parameters; those of a tuple are numbered."""
    names: list[str] = []
    for name, shape in zip(computation.parameter_names, computation.parameter_shapes, strict=True):
        if shape.is_tuple:
            count = shape.without_tokens().leaf_count
            names += [f"{name}.{i}" if name else "" for i in range(count)]
        elif not shape.is_token:
            names.append(name)
    return tuple(names)
