"""`stablexla-compile`: compiles a program to a C library without Python, or to the kernels of a GPU."""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from stablexla.compiling.ahead_of_time import SUFFIXES, compile_library
from stablexla.compiling.compiler import compile
from stablexla.compiling.output_files import check_output
from stablexla.executable.executable import Executable
from stablexla.interop.freezing import freeze
from stablexla.interop.loading import Program
from stablexla.targets.kinds import kind_of
from stablexla.targets.llvm.toolchain import archive
from stablexla.tools.common import (
    add_compile_options,
    add_entry_option,
    compile_options,
    lowered_input,
    program_of,
    run_tool,
    source_of,
)
from stablexla.tools.isolated_tool import is_to_run_apart, run_apart
from stablexla.tools.parser import Parser
from stablexla.tools.running.constants import read_constants
from stablexla.tools.running.open_shapes import add_shapes_option, known_shapes
from stablexla.tools.saved_files import add_key_option, key_of
from stablexla.tools.user_code import load_files

KERNELS = (".ptx", ".cubin", ".so")
"""Outputs for a GPU target."""
OUTPUT = (
    f"the file to make: {', '.join(SUFFIXES)}; .sxe, a saved executable; {', '.join(KERNELS)} with --target gpu:sm_90; "
    "- prints the text of --emit=assembly or llvm-ir, or a GPU's PTX"
)
CONSTANTS = "arrays by the names of parameters that they replace, as constants of the program: .npz or .safetensors"
SAVED = ".sxe"
TEXTS = (".s", ".ll")
EXAMPLES = """\
the functions:
  int model(const float* x, float* y0);                            with a pointer for each array
  int model_main(const void* const* arguments, void* const* results);
  They return 0 when they ran. The header says all of it.

examples:
  stablexla-compile model.mlir -o libmodel.so --header model.h     a shared library and its header
  cc program.c -o program ./libmodel.so                            and how C uses them
  stablexla-compile model.mlir -o model.o --target-cpu=x86-64-v3   an object file for other machines
  c++ program.o model.o $(stablexla-compile --archive) -pthread    which needs the runtime
  stablexla-compile solve.mlir -o libsolve.so --link-arg=-lopenblas
                                                                   a program that calls LAPACK
  stablexla-compile model.mlir -o model.o --target-triple=aarch64-linux-gnu
                                                                   for any processor of that kind
  stablexla-compile model.mlir -o libmodel.so --target-triple=aarch64-linux-gnu --target-cpu=neoverse-n1
      --runtime=libstablexla_standalone.a                          a library for one, by aarch64-linux-gnu-g++
  stablexla-compile model.mlir -o model.ll                         LLVM IR, to look at
  stablexla-compile model.mlir -o model.sxe                        a saved executable: stablexla-run model.sxe,
                                                                   sx.load_executable; --no-source, --key-file
  stablexla-compile model.mlir -o model.sxe --target-cpu=x86-64-v3 the same for older processors too
  stablexla-compile model.mlir -o model.sxe --constants weights.safetensors
                                                                   its weights are constants, packed once
  stablexla-compile model.mlir -o - --emit=assembly                printed
  stablexla-compile model.mlir -o libmodel.so --target=gpu:sm_90 --header=model.h
                                                                   a library that launches the kernels on a GPU
  stablexla-compile model.mlir -o model.ptx --target=gpu:sm_90 --header=model.h
                                                                   the kernels for a GPU; .cubin through ptxas

beside the kernels for a GPU:
  model.json       always: grids, blocks, shared memory, arguments and order of the launches (docs/gpu_from_c.md)
  model.constants  the program's constants, where it has any

exit codes: 0 it was made; 1 an error; 2 wrong usage
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the exit code is 0, 1 after an error, 2 for wrong arguments."""
    arguments = sys.argv[1:] if arguments is None else arguments
    given = parser().parse_args(arguments)
    if is_to_run_apart(given):
        return run_apart("stablexla.tools.compile", arguments, given.time_limit)
    if given.archive:
        print(archive())
        return 0
    return run_tool(lambda: _run(given))


def parser() -> Parser:
    """Return the parser of all options."""
    description = (
        "Compiles a StableHLO program into a library that C programs call without Python, into kernels for a GPU, or "
        "into a saved executable."
    )
    parser = Parser("stablexla-compile", description, EXAMPLES)
    add = parser.add_argument
    add("file", nargs="?", help="MLIR text, bytecode or a portable artifact; - is standard input")
    add_entry_option(parser)
    add("-o", "--output", type=Path, metavar="FILE", help=OUTPUT)
    add_shapes_option(parser)
    add("--constants", type=Path, metavar="FILE", help=CONSTANTS)
    add("--emit", choices=sorted({*SUFFIXES.values()}), help="what to make (default: by the name of the output)")
    add("--header", type=Path, metavar="FILE", help="write the C header; for a GPU one that launches the kernels")
    add("--name", default="", help="what the functions begin with (default: the name of the output)")
    cpu = "as LLVM calls it (default: this machine's; with --target-triple a generic one)"
    add("--target-cpu", default="", metavar="CPU", help=cpu)
    add("--target-triple", default="", metavar="TRIPLE", help="for another kind of machine; as LLVM writes it")
    add(
        "--c-function",
        action="append",
        default=[],
        metavar="NAME",
        help="a custom call's target that is a C function of another library: void NAME(void* out, void** in)",
    )
    add("--link-arg", action="append", default=[], metavar="ARG", help="an argument for the linker, as -lopenblas")
    add("--linker", default="", metavar="PATH", help="a C++ compiler to link with (default: c++, g++, clang++ or cc)")
    static = "the static library to link with (default: what --archive prints); of another machine with --target-triple"
    add("--runtime", default="", metavar="FILE", help=static)
    add("--archive", action="store_true", help="print where the runtime for object files is, and end")
    add("--no-source", action="store_true", help="leave the program itself out of a saved executable")
    add_key_option(parser)
    add_compile_options(parser)
    return parser


def _run(given: argparse.Namespace) -> int:
    if given.file is None or given.output is None:
        parser().error("a program and -o OUTPUT are needed")
    if given.output.suffix != SAVED:
        _refuse(given, ["no_source"], SAVED)
        _refuse(given, ["key_file"], f"{SAVED}: nothing else is signed")
    _check_options_of_target(given)
    load_files(given)
    return _print(given) if str(given.output) == "-" else _make(given)


def _print(given: argparse.Namespace) -> int:
    """Print what else is written to a file; only text is."""
    suffix = next((s for s in TEXTS if SUFFIXES[s] == given.emit), "") if _makes_library(given) else KERNELS[0]
    if not suffix:
        what = f"--emit={given.emit} is no text" if given.emit else "what to print does not follow from the name"
        parser().error(f"-o -: {what}", " or ".join(f"--emit={SUFFIXES[s]}" for s in TEXTS))
    with tempfile.TemporaryDirectory(prefix="stablexla-") as folder:
        made = Path(folder) / f"program{suffix}"
        code = _make(argparse.Namespace(**{**vars(given), "output": made}))
        sys.stdout.write(made.read_text())
    return code


def _make(given: argparse.Namespace) -> int:
    """Write the files."""
    for file in filter(None, (given.output, given.header)):
        check_output(file)
    source = source_of(given)
    program: Program = source
    if lowered_input(given, source) is None:
        program = known_shapes(program_of(given, source), given)
        if given.constants is not None:
            program = freeze(program, read_constants(given.constants))
    elif given.constants is not None:
        parser().error("--constants: the program is lowered already, and has no parameters to replace")
    _check_options_of_target(given)  # now of that for which the program was lowered
    if given.output.suffix == SAVED:
        options = replace(compile_options(given), target_cpu=given.target_cpu or None)
        executable = compile(program, target=given.target, options=options)
        executable.save(given.output, key=key_of(given), source=not given.no_source)
        return 0
    if not _makes_library(given):
        _make_for_gpu(compile(program, target=given.target, options=compile_options(given)), given)
        return 0
    made = compile_library(
        program,
        given.output,
        form=given.emit,
        header_file=given.header,
        name=given.name,
        cpu=given.target_cpu or None,
        triple=given.target_triple,
        c_functions=given.c_function,
        linker=given.linker,
        link_arguments=given.link_arg,
        runtime=given.runtime,
        options=compile_options(given),
    )
    if made.external and SUFFIXES.get(given.output.suffix) != "library":
        print(f"{given.output.name}: needs {', '.join(made.external)} of another library", file=sys.stderr)
    return 0


def _make_for_gpu(executable: Executable, given: argparse.Namespace) -> None:
    from stablexla.compiling import gpu_kernels, gpu_library  # which import the GPU's passes

    names = {"header_file": given.header, "name": given.name}
    if given.output.suffix == ".so":
        gpu_library.write_library(executable, given.output, **names, linker=given.linker, link_arguments=given.link_arg)
    else:
        gpu_kernels.write_kernels(executable, given.output, **names)


def _check_options_of_target(given: argparse.Namespace) -> None:
    if given.output.suffix == SAVED:
        names = ["emit", "header", "name", "target_triple", "c_function", "linker", "link_arg", "runtime"]
        _refuse(given, names, "libraries, not for saved executables")
        return
    if not kind_of(given.target).files:
        parser().error(f"code for {given.target} stays in the process that made it, and is no file", "--target=cpu")
    if _makes_library(given):
        return
    if str(given.output) != "-" and given.output.suffix not in KERNELS:
        parser().error(f"for {given.target} there are {', '.join(KERNELS)}, not {given.output.name}")
    _refuse(given, ["emit", "target_cpu", "target_triple", "c_function", "runtime"], "the CPU alone")
    if given.output.suffix != ".so":
        _refuse(given, ["linker", "link_arg"], "libraries")


def _refuse(given: argparse.Namespace, names: list[str], what: str) -> None:
    """End with an error where one of these options was given, which are for something else."""
    for option in parser().given(given, names):
        parser().error(f"{option} is for {what}")


def _makes_library(given: argparse.Namespace) -> bool:
    return kind_of(given.target).files == "library"


if __name__ == "__main__":
    sys.exit(main())
