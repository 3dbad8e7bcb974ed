"""Ahead-of-time compilation to C libraries: `stablexla-compile` as a Python function."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from stablexla.compiling.c_header import function_name, header, is_function_name, is_identifier
from stablexla.compiling.core import OpenProgram, given_program
from stablexla.compiling.output_files import check_output
from stablexla.compiling.request import Request
from stablexla.dialects import custom_calls
from stablexla.dialects.contexts import contexts_of_their_own
from stablexla.dialects.custom_calls import CustomCallTarget
from stablexla.dialects.errors import CompileError, UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.loading import Program
from stablexla.targets.kinds import kind_of
from stablexla.targets.llvm import toolchain
from stablexla.targets.llvm.options import CpuOptions
from stablexla.targets.llvm.standalone import Standalone, generated, optimized, standalone
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.dump import KnobWatcher
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.runtime.processor import ARM, LEVELS
from stablexla.targets.signature.interface import Signature

Form = Literal["library", "object", "assembly", "llvm-ir"]
SUFFIXES: dict[str, Form] = {".so": "library", ".dylib": "library", ".o": "object", ".s": "assembly", ".ll": "llvm-ir"}


@dataclass(frozen=True)
class Library:
    """The files of a compiled library, and its interface.

    Attributes:
        name: the prefix of its functions.
        signature: the program's parameters and results.
        external: functions that it calls, and that somebody else must have.
    """

    name: str
    signature: Signature
    external: tuple[str, ...]


def compile_library(
    program: Program,
    output: str | Path,
    *,
    form: Form | None = None,
    header_file: str | Path | None = None,
    name: str = "",
    cpu: str | None = None,
    triple: str = "",
    c_functions: Sequence[str] = (),
    linker: str = "",
    link_arguments: Sequence[str] = (),
    runtime: str | Path = "",
    options: CompileOptions | None = None,
) -> Library:
    """Compile a program into a file that a C program uses without Python.

    Args:
        program: what `sx.compile` takes.
        output: the file to write.
        form: its form; by default from the file's suffix.
        header_file: where to write the C header.
        name: the prefix of the functions; by default the output's name.
        cpu: the processor, as LLVM calls it; by default that of the options, of this machine, "native", or a generic
            one of `triple`.
        triple: LLVM's target triple, for another kind of machine. A shared library for one is linked by GCC's cross
            compiler (`aarch64-linux-gnu-g++`), with its `runtime`.
        c_functions: targets of custom calls that are C functions of other libraries.
        linker: a C++ compiler to link with.
        link_arguments: further arguments for it, such as "-lopenblas".
        runtime: the static library `libstablexla_standalone.a` to link with, from the wheel for that machine; by
            default that of this installation.
        options: how to compile.

    Raises:
        UnsupportedError: the program needs Python while it runs, or has shapes that are not known yet.
        CompileError: a name that is none in C; a file that cannot be written; LLVM or the linker failed; and as
            `sx.compile`.
    """
    output, options = Path(output), options or CompileOptions()
    for file in (output, header_file):
        if file is not None:
            check_output(file)
    form = form or _form_of(output)
    cpu = cpu or options.target_cpu or ("generic" if triple else "native")
    options = _for_cpu(options, cpu, triple)
    function_name = prefix_of(name, output)
    if form == "library" and _machine_of(triple) != platform.machine():
        linker = linker or f"{triple}-g++"
        if not runtime:
            raise CompileError(
                f"{output}: a shared library for {triple} needs the runtime of such a machine",
                hint=f'runtime="{toolchain.ARCHIVE}" from the wheel for it; or {output.with_suffix(".o")}, an object '
                "file, which is linked there",
                option=f"--runtime={toolchain.ARCHIVE} from the wheel for it; or {output.with_suffix('.o')}, an object "
                "file, which is linked there",
            )
    with contexts_of_their_own(), _registered(c_functions):
        made, signature = _lowered(program, function_name, options)
    if form == "library" and made.external and not link_arguments:
        raise UnsupportedError(
            f"the program calls {', '.join(made.external)}, which the library must be linked with",
            hint='link_arguments=["-lopenblas"]',
            option="--link-arg=-lopenblas",
        )
    link = partial(
        toolchain.link, output=output, arguments=link_arguments, triple=triple, linker=linker, runtime=runtime
    )
    _write(made, output, form, CpuOptions.of(options).opt_level, cpu, triple, link)
    if header_file is not None:
        Path(header_file).write_text(header(function_name, signature, is_random=made.is_random))
    return Library(function_name, signature, made.external)


def _lowered(program: Program, name: str, options: CompileOptions) -> tuple[Standalone, Signature]:
    given = given_program(Request(program, options=options))
    if isinstance(given, OpenProgram):
        raise UnsupportedError(
            "the shapes of the program's parameters are not known yet",
            hint="stablexla-compile --shapes 2x3,5 makes a library for certain shapes",
            option="--shapes 2x3,5",
        )
    signature, target = given.signature, given.target.name
    if kind_of(target).files != "library":
        file = f"{program}: " if isinstance(program, Path) else ""
        raise CompileError(f"{file}it was lowered for {target}, and a C library is for the CPU alone")
    if signature.num_devices > 1:
        raise UnsupportedError(
            f"the program is for {signature.num_devices} devices, and a C function runs on one: there is nobody to "
            "wait for in a collective",
            hint="executable.save(path) keeps a program for several devices",
        )
    watcher = given.watcher(KnobWatcher)
    made = run_pipeline(
        copy_of(given.source),
        given.pipeline,
        watcher=watcher,
        again=lambda: copy_of(given.source),
        holds=not watcher.sees_modules,
    )
    return standalone(made, signature, name, options.flush_denormals), signature


def _write(
    made: Standalone,
    output: Path,
    form: Form,
    opt_level: int,
    cpu: str,
    triple: str,
    link: Callable[[Path], None],
) -> None:
    with tempfile.TemporaryDirectory(prefix="stablexla-") as temporary:
        folder = Path(temporary)
        if form == "llvm-ir":
            output.write_text(made.text())
            return
        text = made.text() if form == "assembly" else made.with_files(folder, triple)
        text = optimized(text, opt_level, cpu, triple)
        target = folder / "program.o" if form == "library" else output
        generated(text, target, opt_level, cpu, triple, assembly=form == "assembly")
        if form == "library":
            link(target)


def _form_of(output: Path) -> Form:
    if output.suffix not in SUFFIXES:
        raise CompileError(
            f"{output}: what to make does not follow from the name",
            hint=f"a name that ends in {', '.join(SUFFIXES)}, or form=",
            option=f"a name that ends in {', '.join(SUFFIXES)}, or --emit; .ptx and .cubin with --target gpu:sm_90",
        )
    return SUFFIXES[output.suffix]


def prefix_of(name: str, output: Path) -> str:
    """Return the prefix of a program's C functions: `name`, or what follows from the name of the output.

    Raises:
        CompileError: `name` is none that a function in C can have.
    """
    if not name:
        return function_name(output.name.split(".")[0].removeprefix("lib"), "program")
    if not is_identifier(name):
        raise CompileError(f"{name!r} cannot be the name of a function in C")
    if not is_function_name(name):
        raise CompileError(
            f"{name!r} cannot be the name of the program's function: the libraries of C or the runtime have one",
            hint=f"name={function_name(name, 'program')!r}",
            option=f"--name={function_name(name, 'program')}",
        )
    return name


def _machine_of(triple: str) -> str:
    return triple.partition("-")[0] or platform.machine()


def _for_cpu(options: CompileOptions, cpu: str, triple: str) -> CompileOptions:
    """Return the options with the target's processor, or the vector width of one that is not known here.

    All of AArch64 have vectors of 128 bits.
    """
    if cpu in LEVELS:
        return replace(options, target_cpu=cpu)
    if options.vector_bits is not None or (cpu == "native" and not triple):
        return options
    if _machine_of(triple) in ARM:
        return replace(options, target_cpu="armv8-a")
    if cpu != "generic":
        raise CompileError(
            f"how wide the vectors of {cpu!r} are is not known here",
            hint="vector_bits=128, 256 or 512",
            option="--vector-bits=128, 256 or 512",
        )
    return replace(options, vector_bits=128)


@contextmanager
def _registered(names: Sequence[str]) -> Iterator[None]:
    """Register, inside a `with` block, custom-call targets that only the linker resolves."""
    kept = {name: custom_calls.TARGETS.get(name) for name in names}
    custom_calls.TARGETS.update({name: CustomCallTarget(name, address=1) for name in names})
    try:
        yield
    finally:
        for name, target in kept.items():
            if target is None:
                del custom_calls.TARGETS[name]
            else:
                custom_calls.TARGETS[name] = target
