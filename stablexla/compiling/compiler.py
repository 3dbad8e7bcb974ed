"""`compile`: from a program in any form to an executable, by the cache, another process, or at the first call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stablexla.builder.source import EndingAtUser
from stablexla.compiling.cache import Folder, compile_cached
from stablexla.compiling.request import BIG, Request, constant_bytes, is_lowered
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.builds.pins import check_pins
from stablexla.dialects.collector import without_collections
from stablexla.dialects.errors import CompileError
from stablexla.dialects.satellites import satellite
from stablexla.executable.executable import Executable
from stablexla.executable.memory import limit_of_environment
from stablexla.targets.pipeline.knobs import knobs, warn_of_unknown_variables
from stablexla.targets.pipeline.options import DEFAULT_TARGET, MAIN, CompileOptions
from stablexla.targets.registry import find_target, pipeline_of

# A program that is in the cache is found without an MLIR: what needs one is imported where it is used.
if TYPE_CHECKING:
    import jaxlib.mlir.ir as hlo_ir

    from stablexla.compiling.core import OpenProgram
    from stablexla.interop.loading import Program
    from stablexla.targets.pipeline.pipelines import Pipeline


def compile(
    program: Program,
    *,
    entry: str = MAIN,
    target: str = DEFAULT_TARGET,
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
        target: what to compile for: "cpu"; "gpu", or another GPU that `sx.gpu.target(...)` spells; "upstream", the
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
    request = Request(program, entry, target, num_replicas, num_partitions, options)
    with EndingAtUser():
        if options.check:
            checked: Executable = satellite("inspection.checking.checked").compile_checked(*request)
            return checked
        folder = _folder_for(request)
        return _compile_now(request) if folder is None else compile_cached(_compile_now, folder, request)


def _as_options(given: object) -> str:
    return f"sx.CompileOptions(**{told(given)})" if isinstance(given, dict) else "sx.CompileOptions()"


def _folder_for(request: Request) -> Folder | None:
    """Return the folder of the cache; None where the program is compiled without it."""
    if is_lowered(request.program):
        return None
    if folder := request.options.cache or knobs.cache:
        return Folder(Path(folder))
    return None if knobs.kernel_cache == "off" or constant_bytes(request.program) > BIG else Folder.by_default()


def _compile_now(request: Request) -> Executable:
    """Compile without the cache."""
    with without_collections():
        if f"{__package__}.core" not in sys.modules:
            check_pins()
        from stablexla.compiling.core import OpenProgram, compile_watched

    is_isolated = request.options.isolated
    compile_it = satellite("processes.compiling").compile_isolated if is_isolated else compile_watched
    made: Executable | OpenProgram = compile_it(request)
    if isinstance(made, OpenProgram):
        made = _for_shapes(made, request)
    made._compile_options = request.options
    return made


def _for_shapes(program: OpenProgram, request: Request) -> Executable:
    """Return the executable that compiles when shapes are known: at once where only those of results are not."""
    from stablexla.compiling.specialization import ShapedExecutable

    replicas, partitions = program.counts

    def compile_for(source: hlo_ir.Module, pipeline: Pipeline) -> Executable:
        options = replace(request.options, pipeline=pipeline)
        return compile(source, target=program.target, num_replicas=replicas, num_partitions=partitions, options=options)

    pipeline = pipeline_of(find_target(program.target), request.options)
    shaped = ShapedExecutable(*program, pipeline, compile_for)
    is_open = any(None in p.shape for p in shaped.parameters)
    return shaped if is_open else shaped.specialize([p.shape for p in shaped.parameters])


def compile_for_sizes(executable: Executable, arguments: Sequence[Any]) -> Executable:
    """Return the static program for arrays such as these, for a program with sizes at run time.

    Raises:
        UnsupportedError: sizes that do not follow from those of the arguments.
    """
    import numpy as np

    from stablexla.compiling.known_shapes import with_shapes
    from stablexla.targets.pipeline.driver import copy_of
    from stablexla.targets.stablehlo.imports.shapes.bounds import forget_bounds

    source = copy_of(executable._stablehlo, here=True)
    forget_bounds(source)
    pipeline = with_shapes(executable._pipeline_again(), source, tuple(tuple(np.shape(a)) for a in arguments))
    options = replace(executable._compile_options or CompileOptions(), pipeline=pipeline)
    return compile(source, target=executable.target, options=options)
