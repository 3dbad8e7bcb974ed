"""`compile`: from a program in any form to an executable.

interop/ reads the program, targets/ has the steps and passes; this module combines them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.builder.computation import XlaComputation
from stablexla.builder.source import EndingAtUser
from stablexla.compiling.device_counts import Counts, counts_of, with_counts
from stablexla.compiling.staged import StagedText
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.caller import warn
from stablexla.dialects.choices import chosen
from stablexla.dialects.contexts import contexts_of_their_own, take_in
from stablexla.dialects.errors import CompileError, StablexlaError
from stablexla.dialects.rules import LoweringRule, each_used, is_one_program, merged
from stablexla.dialects.satellites import satellite
from stablexla.dialects.stopping import stoppable
from stablexla.executable.executable import Executable
from stablexla.executable.memory import limit_of_environment
from stablexla.interop.entry import MAIN
from stablexla.interop.load import Program, load
from stablexla.targets.pipeline.driver import check_pipeline, copy_of, run_pipeline
from stablexla.targets.pipeline.dump import KnobWatcher
from stablexla.targets.pipeline.knobs import knobs, warn_of_unknown_variables
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.registry import Target, find_target, pipeline_of
from stablexla.targets.signature.signature import Signature, needs_shapes, signature_of
from stablexla.targets.stablehlo.inlining import operations_of

if TYPE_CHECKING:
    from stablexla.targets.stablehlo.partition import Partitioned

BIG = 8 << 20
"""Bytes of constants above which a program is compiled in contexts of its own."""


def compile(
    program: Program,
    *,
    entry: str = MAIN,
    target: str = "cpu",
    num_replicas: int | None = None,
    num_partitions: int | None = None,
    options: CompileOptions | None = None,
) -> Executable:
    """Compile a program.

    It may be called from many threads at once; any thread may use the executable, also after the compiling one has
    ended.

    Args:
        program: what `sx.load` takes, or the text of a later stage, as `stablexla-opt --stage` writes it, from which
            the compilation goes on: an `XlaComputation`; MLIR or HLO text (`str`); MLIR bytecode, a StableHLO
            portable artifact or an HLO proto (`bytes`); a `pathlib.Path` to any of them; a `jaxlib.mlir.ir.Module`,
            which stays unchanged.
        entry: the function of the module to run, which may be any of its functions.
        target: what to compile for: "cpu"; "gpu", or another GPU that `sx.targets.gpu(...)` spells; "upstream", the
            shortest way, through upstream's own passes, as a second opinion.
        num_replicas: how many replicas run the program; the module's `mhlo.num_replicas`, or 1, when not given.
        num_partitions: how many partitions each has; the module's `mhlo.num_partitions`, or 1, when not given. Replicas
            times partitions is the number of devices, which run the program at the same time:
            `Executable.execute_replicated`.
        options: how to compile.

    Raises:
        ParseError: the program is no module.
        VerificationError: it is one that breaks a rule of its dialects, or has no function `entry`; the error
            lists the functions that there are.
        UnsupportedError: something in it cannot be done yet; the error names the operation.
        CompileError: a step of the pipeline failed, or there is no such target or pass.

    >>> b = sx.XlaBuilder("affine")
    >>> x = b.parameter(0, sx.f32[2, 3], name="x")
    >>> v = b.parameter(1, sx.f32[3], name="v")
    >>> affine = sx.compile(b.build(sx.add(x, v, broadcast_dimensions=(1,))))
    >>> affine(np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32))
    array([[1., 2., 3.],
           [1., 2., 3.]], dtype=float32)
    """
    options = CompileOptions() if options is None else options
    if not isinstance(options, CompileOptions):
        raise CompileError(f"options must be CompileOptions, not {told(options)}", hint=_as_options(options))
    warn_of_unknown_variables()
    limit_of_environment()
    given = (program, entry, target, num_replicas, num_partitions, options)
    with EndingAtUser():
        if options.check:
            checked: Executable = satellite("inspection.checking.compiling").compile_checked(*given)
            return checked
        if StagedText.of(program) is not None:
            return _compile_now(*given)
        folder = options.cache or knobs.cache
        if not folder and (knobs.kernel_cache == "off" or is_big(program)):
            return _compile_now(*given)
        from stablexla.compiling.cache import Folder, compile_cached

        chosen = Folder(Path(folder)) if folder else Folder.by_default()
        if chosen is None:
            return _compile_now(*given)
        return compile_cached(lambda: _compile_now(*given), chosen, *given)


def _as_options(given: object) -> str:
    return f"sx.CompileOptions(**{told(given)})" if isinstance(given, dict) else "sx.CompileOptions()"


def _compile_now(
    program: Program,
    entry: str,
    target: str,
    num_replicas: int | None,
    num_partitions: int | None,
    options: CompileOptions,
) -> Executable:
    """Compile without the cache."""
    if not options.isolated:
        return compile_watched(program, entry, target, num_replicas, num_partitions, options)
    compile_isolated = satellite("processes.compiling").compile_isolated
    executable: Executable = compile_isolated(program, entry, target, num_replicas, num_partitions, options)
    executable._compile_options = options
    return executable


def compile_watched(
    program: Program,
    entry: str,
    target: str,
    num_replicas: int | None,
    num_partitions: int | None,
    options: CompileOptions,
    watcher: type[KnobWatcher] = KnobWatcher,
) -> Executable:
    """Compile in this process, with a `watcher` of the pipeline."""
    with stoppable(options.time_limit), contexts_for(program):
        return _compile(program, entry, target, num_replicas, num_partitions, options, watcher)


def _compile(
    program: Program,
    entry: str,
    asked: str,
    num_replicas: int | None,
    num_partitions: int | None,
    options: CompileOptions,
    watch: type[KnobWatcher],
) -> Executable:
    target = find_target(asked)
    for name in target.ignores:
        if getattr(options, name) is not None:
            warn(f"{name}={getattr(options, name)} changes nothing for the target {target.name}")
    lowered = StagedText.of(program)
    if lowered is not None:
        target = lowered.target(asked)
        if (rest := lowered.rest(target, options)) is not None:
            return _compile_rest(lowered, rest, target, options, watch)
    source = load(program, entry=entry)
    counts = counts_of(source, num_replicas, num_partitions)
    source = with_counts(source, counts)
    pipeline = pipeline_of(target, options)
    if options.pipeline is not None:
        check_pipeline(pipeline)
    known = source
    if needs_shapes(source):
        from stablexla.compiling.specialization import executable_for_shapes, with_known_shapes

        after = with_known_shapes(source, pipeline)
        if after is None:
            return executable_for_shapes(source, target, options, *counts)
        known = after
    sharded = _partitioned(known, counts)
    prepared = sharded.module if sharded is not None and known is source else source
    signature = signature_of(known if sharded is None else sharded.module)
    if isinstance(program, XlaComputation) and entry == MAIN:
        signature = replace(signature, parameter_names=leaf_names(program))
    watcher = watch(signature.name, pipeline, source)
    with each_used(_rules_of_program(pipeline, options)):
        function = _built(prepared, pipeline, target, signature, options, watcher)
    watcher.finish()
    executable = Executable(
        source,
        signature,
        function,
        pipeline,
        target=target.name,
        num_replicas=counts[0],
        num_partitions=counts[1],
        computation=program if isinstance(program, XlaComputation) and entry == MAIN else None,
        options=options,
        shardings=None if sharded is None else (sharded.inputs, sharded.outputs),
    )
    executable._overrides = watcher.overrides
    return executable


def _rules_of_program(pipeline: Pipeline, options: CompileOptions) -> tuple[LoweringRule, ...]:
    """Return the rules that were given for one program; those that are registered are for others too."""
    own = options.pipeline.rules if options.pipeline is not None else ()
    return pipeline.rules if is_one_program() else merged(own, options.all_rules)


def _compile_rest(
    lowered: StagedText, rest: Pipeline, target: Target, options: CompileOptions, watch: type[KnobWatcher]
) -> Executable:
    """Take a program from the stage at which its text is to the end."""
    signature = lowered.signature()
    module = lowered.module(pipeline_of(target, options))
    watcher = watch(signature.name, rest, module, signature)
    function = _built(module, rest, target, signature, options, watcher)
    watcher.finish()
    return Executable(
        module,
        signature,
        function,
        rest,
        target=target.name,
        num_replicas=signature.num_replicas,
        num_partitions=signature.num_partitions,
        options=options,
    )


def _built(
    module: hlo_ir.Module,
    pipeline: Pipeline,
    target: Target,
    signature: Signature,
    options: CompileOptions,
    watcher: KnobWatcher,
) -> Any:
    """Run the steps on a copy of the module, and load what they make."""

    def build() -> Any:
        lowered = run_pipeline(copy_of(module), pipeline, watcher=watcher, again=lambda: copy_of(module))
        start = perf_counter()
        with chosen(options.choices or knobs.choices):
            function = target.load(lowered, signature, options)
        watcher.times["machine code"] = perf_counter() - start
        return function

    if options.pipeline is not None or watcher.sees_modules:
        return build()
    with target.ahead(options) as ahead:
        try:
            return build()
        except StablexlaError:
            if ahead is None or not ahead.has_begun:
                raise
    return build()  # the error says more where the module is whole


def _partitioned(module: hlo_ir.Module, counts: Counts) -> Partitioned | None:
    """Partition (SPMD): return the program of each device for a program on sharded arrays."""
    if counts[1] == 1:
        return None
    from stablexla.targets.stablehlo.partition import partitioned

    return partitioned(copy_of(module))


def is_big(program: Program) -> bool:
    """Return whether a program has constants too large to stay in the thread's contexts."""
    return _bytes_of(program) > BIG


def contexts_for(program: Program) -> AbstractContextManager[None]:
    """Enter contexts for a program: the thread's own, unless its constants would make them too large."""
    size = _bytes_of(program)
    return nullcontext() if size <= BIG and take_in(size) else contexts_of_their_own()


def _bytes_of(program: Program) -> int:
    """Return about how many bytes a program's constants take."""
    if isinstance(program, Path):
        return program.stat().st_size if program.is_file() else 0
    if isinstance(program, (str, bytes, bytearray, memoryview)):
        return len(program)
    module = program.module if isinstance(program, XlaComputation) else program
    return _constant_bytes(module) if isinstance(module, hlo_ir.Module) else 0


def _constant_bytes(module: hlo_ir.Module) -> int:
    """Return about how many bytes the module's constants take: four for each element."""
    return sum(4 * _stored_elements(op) for op in operations_of(module, "stablehlo.constant"))


def _stored_elements(constant: Any) -> int:
    count: int = prod(constant.results[0].type.shape)
    with suppress(TypeError):  # of complex numbers, which the bindings do not read
        if count > 1 and constant.attributes["value"].is_splat:
            return 1
    return count


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
