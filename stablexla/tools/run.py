"""`stablexla-run`: compiles a program and runs it on given or made-up inputs; shows, saves, times, compares results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from stablexla.compiler import compile
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.errors import ExecutionError
from stablexla.executable import Executable
from stablexla.interop.load import load, load_bytes
from stablexla.lowering.types import TensorType
from stablexla.targets.knobs import knobs
from stablexla.targets.options import CompileOptions
from stablexla.targets.signature import Signature, signature_of
from stablexla.tools.apart import APART, run_apart
from stablexla.tools.common import add_compile_options, compile_options, count, read_input, run_tool
from stablexla.tools.comparing import HELP, add_compare_options, compare, read_pipeline
from stablexla.tools.explaining import add_explain_options, explain, profile
from stablexla.tools.inputs import FORMS, load_inputs, make_input
from stablexla.tools.open_shapes import known_shapes
from stablexla.tools.opt_options import load_python

Array = npt.NDArray[Any]
EXAMPLES = f"""
inputs:
  --input SPEC is given once for each parameter, in order; those left over are random.
  SPEC is {FORMS}.
{HELP}
examples:
  stablexla-run model.mlir                                  random inputs; a line for each result
  stablexla-run model.mlir --input x.npy --input 0.5 --print
  stablexla-run model.mlir --input random:7 --output-dir out
  stablexla-run model.mlir --shapes 8x3,8                   for tensor<?x3xf32> and tensor<?xf32>
  stablexla-run model.mlir --time 100                       how long a call takes
  stablexla-run model.mlir --compare=interpreter            the first operation that StableHLO's interpreter does not
                                                            agree with
  stablexla-run model.mlir --compare=tensor --json          whether what comes after the stage 'tensor' breaks it
  stablexla-run model.mlir --explain                        what became of each operation: kernels, bytes, flops
  stablexla-run model.mlir --explain=page.html              the same as a page, with the stages side by side
  stablexla-run model.mlir --profile=100 --trace=t.json     time by kernel; the file is for https://ui.perfetto.dev
  stablexla-run model.mlir --dump dump                      write the IR of every stage

exit codes: 0 it ran, and agreed if it was compared; 1 an error, or results that disagree; 2 wrong usage
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stablexla-run",
        description="Compiles a StableHLO program and runs it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("file", help="MLIR text, bytecode or a portable artifact; - is standard input")
    add("--input", action="append", default=[], metavar="SPEC", help="an input; see below")
    add("--inputs", type=Path, metavar="FILE", help="all inputs: an .npz with one array for each parameter, in order")
    add("--shapes", metavar="LIST", help="a shape for each parameter whose type leaves extents open: 2x3,5")
    add("--seed", type=int, default=0, metavar="N", help="of the random inputs (default: 0)")
    add("--print", action="store_true", help="print the results in full")
    add(
        "--output-dir", type=Path, metavar="DIR", help="save the results as result0.npy, result1.npy ... in this folder"
    )
    add("--time", type=count, metavar="N", help="call it N times more and show how long a call takes")
    add("--dump", type=Path, metavar="DIR", help="write the IR after every step below this folder")
    add("--pipeline", type=Path, metavar="FILE", help="compile by these steps, as str(pipeline) writes them")
    add("--load", action="append", default=[], metavar="FILE.py", help="run this first: it registers passes")
    add_explain_options(parser)
    add_compare_options(parser)
    add_compile_options(parser)
    add(APART, action="store_true", help=argparse.SUPPRESS)
    return parser


def _inputs(specs: Sequence[str], signature: Signature, seed: int) -> list[Array]:
    if len(specs) > len(signature.parameters):
        raise ExecutionError(
            f"{signature.name}: takes {len(signature.parameters)} inputs, but {len(specs)} are given: {signature}"
        )
    arrays = []
    names = signature.parameter_names or ("",) * len(signature.parameters)
    for i, (type_, name) in enumerate(zip(signature.parameters, names, strict=True)):
        place = f"parameter {i}" + (f" ({name})" if name else "")
        spec = specs[i] if i < len(specs) else "random"
        arrays.append(make_input(spec, type_, seed + i, place, signature.dynamic_parameters[i]))
    return arrays


def _show(results: Sequence[Array], types: Sequence[TensorType], console: Console) -> None:
    """A line for each result."""
    table = Table("result", "shape", "smallest", "mean", "largest", "not a number")
    for i, (array, type_) in enumerate(zip(results, types, strict=True)):
        table.add_row(str(i), str(type_), *_statistics(array, type_.element))
    console.print(table)


def _statistics(array: Array, element: ElementType) -> list[str]:
    wide = np.abs(array) if element.is_complex else array.astype(np.float64)
    nan = np.isnan(wide)
    if nan.all():
        return ["", "", "", str(nan.sum())]
    numbers = wide[~nan]
    with np.errstate(all="ignore"):
        return [f"{x:.6g}" for x in (numbers.min(), numbers.mean(), numbers.max())] + [str(nan.sum())]


def _print(results: Sequence[Array], types: Sequence[TensorType]) -> None:
    with np.printoptions(threshold=sys.maxsize):
        for i, (array, type_) in enumerate(zip(results, types, strict=True)):
            print(f"result {i}: {type_}\n{array}")


def _save(results: Sequence[Array], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for i, array in enumerate(results):
            np.save(folder / f"result{i}.npy", array)
    except OSError as error:
        raise ExecutionError(f"{folder} cannot be written: {error.strerror}") from None


def _time(executable: Executable, inputs: Sequence[Array], calls: int, compiling: float, console: Console) -> None:
    seconds = []
    for _ in range(calls):
        start = perf_counter()
        executable.execute(inputs)
        seconds.append(perf_counter() - start)
    table = Table("", "milliseconds")
    rows = {"compiling": compiling, "fastest call": min(seconds), "median call": float(np.median(seconds))}
    for name, value in {**rows, "slowest call": max(seconds)}.items():
        table.add_row(name, f"{value * 1e3:.4f}")
    console.print(table)


def _options(arguments: argparse.Namespace) -> CompileOptions:
    options = compile_options(arguments)
    return replace(options, pipeline=read_pipeline(arguments.pipeline)) if arguments.pipeline else options


def _run(arguments: argparse.Namespace) -> int:
    for script in arguments.load:
        load_python(script)
    module = load_bytes(*read_input("-")) if arguments.file == "-" else load(Path(arguments.file))
    module = known_shapes(module, arguments)
    signature = signature_of(module)
    inputs = (
        load_inputs(arguments.inputs, signature.parameters)
        if arguments.inputs
        else _inputs(arguments.input, signature, arguments.seed)
    )
    dump = {"dump": arguments.dump} if arguments.dump else {}
    start = perf_counter()
    with knobs.scoped(**dump):
        executable = compile(module, target=arguments.target, options=_options(arguments))
    compiling = perf_counter() - start
    if not explain(executable, arguments):
        return 0
    results = executable.execute(inputs)
    console = Console()
    if arguments.print:
        _print(results, signature.results)
    elif not arguments.json:
        _show(results, signature.results, console)
    if arguments.output_dir:
        _save(results, arguments.output_dir)
    if arguments.time:
        _time(executable, inputs, arguments.time, compiling, console)
    profile(executable, inputs, arguments)
    if arguments.compare:
        return compare(executable, inputs, arguments, console)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The tool; returns its exit code."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser().parse_args(given)
    if arguments.isolated and not arguments.apart:  # what else reads the program is not done here either
        return run_apart("stablexla.tools.run", given, compiling_apart=True)
    return run_tool(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
