"""`stablexla-run`: compiles a program and runs it on given or random inputs; shows, saves, times, compares results."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

from stablexla.compiling.compiler import compile
from stablexla.compiling.output_files import check_output
from stablexla.dialects.display.tables import console, show_table
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.errors import CompileError, ExecutionError
from stablexla.executable.executable import Executable
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import Signature, signature_of
from stablexla.tools.common import (
    add_compile_options,
    add_entry_option,
    compile_options,
    count,
    lowered_input,
    program_of,
    run_tool,
    source_of,
)
from stablexla.tools.isolated_tool import run_apart
from stablexla.tools.parser import Parser
from stablexla.tools.running.checking import HELP as CHECKING
from stablexla.tools.running.checking import add_check_options, check
from stablexla.tools.running.comparing import HELP, add_compare_options, compare
from stablexla.tools.running.expecting import HELP as EXPECTING
from stablexla.tools.running.expecting import add_expect_options, expect, read_expected
from stablexla.tools.running.explaining import TEXT, add_explain_options, explain, profile
from stablexla.tools.running.inputs import FORMS, random_inputs
from stablexla.tools.running.launching import LAUNCHED, is_quiet, launch, run_launched
from stablexla.tools.running.on_devices import EXAMPLES as DEVICE_EXAMPLES
from stablexla.tools.running.on_devices import HELP as DEVICES
from stablexla.tools.running.on_devices import add_device_options, device_inputs, runner
from stablexla.tools.running.open_shapes import add_shapes_option, known_shapes
from stablexla.tools.saved_files import add_key_option, is_saved, load_saved
from stablexla.tools.user_code import load_files

Array = npt.NDArray[Any]
OF_COMPILING = (
    "opt_level",
    "vector_bits",
    "num_threads",
    "flush_denormals",
    "excess_precision",
    "pipeline",
    "rule",
    "dump",
    "replicas",
    "partitions",
)
OF_SOURCE = ("compare", "check", "explain", "profile", "trace")
"""Options that need the program in StableHLO."""
STATISTICS = ("smallest", "mean", "largest", "not a number")
BLOCK = 1 << 18
"""Elements of a result that are looked at together."""
_LONGEST = 60  # letters of a file's name
EXAMPLES = f"""
inputs:
  --input SPEC is given once for each parameter, in order, or as --input NAME=SPEC by the parameters' names.
  Without any, all are random numbers, and a line on standard error says so for each.
  SPEC is {FORMS}.
  --inputs FILE.npz has an array for each parameter: by name as np.savez(file, x=..., v=...), or in order as
  np.savez(file, a, b).
{HELP}{CHECKING}{EXPECTING}{DEVICES}
examples:
  stablexla-run model.mlir                                  random inputs; a line for each result
  stablexla-run model.mlir --input x.npy --input 0.5 --print
  stablexla-run model.mlir --input random:7 --output-dir out
  stablexla-run model.mlir --entry=predict                  another function of the module than main
  stablexla-run model.mlir --shapes 8x3,8                   for tensor<?x3xf32> and tensor<?xf32>
  stablexla-run model.mlir --time 100                       how long a call takes: minimum, median, 90 and 99 per cent
  stablexla-run model.mlir --input x.npy --expect y.npy     whether the result is that of a file
  stablexla-run model.mlir --compare=interpreter            the first operation that StableHLO's interpreter does not
                                                            agree with
  stablexla-run model.mlir --compare=tensor --json          whether what comes after the stage 'tensor' breaks it
  stablexla-run model.mlir --check                          the first operation that makes a NaN
  stablexla-run model.mlir --explain                        what became of each operation: kernels, bytes, flops
  stablexla-run model.mlir --memory                         how much memory a call needs
  stablexla-run model.mlir --explain=page.html              the same as a page, with the stages side by side
  stablexla-run model.mlir --explain=page.html --profile    the page with the time of each kernel
  stablexla-run model.mlir --profile=100 --trace=t.json     time by kernel; the file is for https://ui.perfetto.dev
  stablexla-run model.mlir --dump dump                      write the IR of every stage
  stablexla-run model.sxe --key-file key                    a saved executable, if it is signed with the key
  stablexla-run model.mlir --isolated --time-limit 10       in a process of its own, which may crash
{DEVICE_EXAMPLES}
exit codes: 0 it ran, and agreed if it was compared; 1 an error, results that disagree or are not as expected, or
  what was checked for; 2 wrong usage
"""


def parser() -> Parser:
    """Return the parser of all options."""
    parser = Parser("stablexla-run", "Compiles a StableHLO program and runs it.", EXAMPLES)
    add = parser.add_argument
    add("file", help="MLIR text, bytecode, a portable artifact or a saved executable; - is standard input")
    add_entry_option(parser)
    add("--input", action="append", default=[], metavar="SPEC", help="an input; see below")
    add("--inputs", type=Path, metavar="FILE", help="all inputs: an .npz with one array for each parameter")
    add("--strict-inputs", action="store_true", help="inputs that are not given are an error, and not random")
    add_shapes_option(parser)
    add("--seed", type=int, default=0, metavar="N", help="of the random inputs (default: 0)")
    add("--print", action="store_true", help="print the results in full")
    add(
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="save the results as result0.npy, result1.npy ... in this folder; result1-loss.npy where JAX named it",
    )
    add(
        "--time",
        type=count,
        metavar="N",
        help="show how long a call takes, of N after a tenth as many; --json: in seconds",
    )
    add("--dump", type=Path, metavar="DIR", help="write the IR after every step below this folder")
    add_explain_options(parser)
    add_compare_options(parser)
    add_check_options(parser)
    add_expect_options(parser)
    add_compile_options(parser)
    add_key_option(parser)
    add_device_options(parser)
    add(LAUNCHED, type=Path, help=argparse.SUPPRESS)
    return parser


def _show(results: Sequence[Sequence[Array]], signature: Signature, where: Console) -> None:
    """Print a line for each result of each device."""
    several, names = len(results) > 1, signature.result_names
    rows = [
        (
            *((str(device),) if several else ()),
            str(i),
            *((names[i],) if names else ()),
            str(type_),
            *_statistics(array, type_.element),
        )
        for device, own in enumerate(results)
        for i, (array, type_) in enumerate(zip(own, signature.results, strict=True))
    ]
    heads = (*(("device",) if several else ()), "result", *(("name",) if names else ()), "shape", *STATISTICS)
    show_table(where, heads, rows, numbers=("device", "result", *STATISTICS))


def _statistics(array: Array, element: ElementType) -> list[str]:
    """Return the cells of an array, which is looked at in blocks: as f64 it may be eight times as large."""
    least, total, most, count = np.inf, 0.0, -np.inf, 0
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, BLOCK):
            part = flat[start : start + BLOCK]
            wide = np.abs(part) if element.is_complex else part.astype(np.float64)
            numbers = wide[~np.isnan(wide)].astype(np.float64)
            least, most = min(least, numbers.min(initial=np.inf)), max(most, numbers.max(initial=-np.inf))
            total, count = total + float(numbers.sum()), count + numbers.size
        if not count:
            return ["", "", "", str(flat.size)]
        return [f"{x:.6g}" for x in (least, total / count, most)] + [str(flat.size - count)]


def _print(results: Sequence[Sequence[Array]], signature: Signature) -> None:
    names = signature.result_names or ("",) * len(signature.results)
    with np.printoptions(threshold=sys.maxsize):
        for device, own in enumerate(results):
            where = f"device {device}, " if len(results) > 1 else ""
            for i, (array, type_, name) in enumerate(zip(own, signature.results, names, strict=True)):
                print(f"{where}result {i}{name and f', {name}'}: {type_}\n{array}")


def _save(results: Sequence[Sequence[Array]], names: Sequence[str], folder: Path) -> None:
    try:
        for device, own in enumerate(results):
            inner = folder / f"device{device}" if len(results) > 1 else folder
            inner.mkdir(parents=True, exist_ok=True)
            for i, array in enumerate(own):
                words = re.findall(r"[\w.]+", names[i]) if names else ()
                np.save(inner / f"{'-'.join((f'result{i}', *words))[:_LONGEST]}.npy", array)
    except OSError as error:
        raise ExecutionError(f"{folder} cannot be written: {error.strerror}") from None


def _time(call: Callable[[], object], calls: int, compiling: float, where: Console, *, as_json: bool) -> None:
    """Measure calls, after a tenth as many that do not count."""
    warm_up = max(1, calls // 10)
    for _ in range(warm_up):
        call()
    seconds = []
    for _ in range(calls):
        start = perf_counter()
        call()
        seconds.append(perf_counter() - start)
    part = dict(zip(("minimum", "median", "p90", "p99", "maximum"), np.percentile(seconds, [0, 50, 90, 99, 100])))
    times = {"compiling": compiling, **{name: float(value) for name, value in part.items()}}
    if as_json:
        print(json.dumps({"calls": calls, "warm_up": warm_up, "seconds": times}, indent=2))
        return
    rows = [(f"{name} call" if name in part else name, f"{value * 1e3:.4f}") for name, value in times.items()]
    show_table(where, ("", "milliseconds"), rows, numbers=("milliseconds",))


def _options(arguments: argparse.Namespace) -> CompileOptions:
    limit = arguments.time_limit if arguments.isolated or not arguments.compare else None  # it is the comparison's
    return replace(compile_options(arguments), time_limit=limit)


def _run(arguments: argparse.Namespace, given: Sequence[str]) -> int:
    load_files(arguments)
    for file in (arguments.trace, arguments.explain if arguments.explain != TEXT else None):
        if file is not None:
            check_output(file)
    for folder in (
        arguments.output_dir,
        arguments.dump,
        arguments.compare_dir if arguments.compare else None,
        arguments.check_dir,
    ):
        if folder is not None:
            check_output(folder, makes_folders=True)
    source = source_of(arguments)
    if is_saved(source):
        _refuse_compiling(arguments)
        executable = load_saved(source, arguments)
        if any(getattr(arguments, option) for option in OF_SOURCE):
            executable._stablehlo  # noqa: B018  # raises before anything runs, where it was saved without its source
        return _work(executable, executable._signature, arguments, 0.0)
    lowered = lowered_input(arguments, source)
    if lowered is None:
        module = program_of(arguments, source)
        if arguments.launcher and not arguments.launched:
            return launch(module, source if isinstance(source, bytes) else None, given, arguments)
        module = known_shapes(module, arguments)
        signature = signature_of(module)
    else:
        for option in OF_SOURCE:
            if getattr(arguments, option):
                raise CompileError(
                    f"--{option} needs the program in StableHLO; this one is at {lowered.header.stage!r}"
                )
        module, signature = source, lowered.signature()
    dump = {"dump": arguments.dump} if arguments.dump and not is_quiet() else {}
    start = perf_counter()
    with knobs.scoped(**dump):
        executable = compile(
            module,
            target=arguments.target,
            num_replicas=arguments.replicas,
            num_partitions=arguments.partitions,
            options=_options(arguments),
        )
    compiling = perf_counter() - start
    return _work(executable, signature, arguments, compiling)


def _refuse_compiling(arguments: argparse.Namespace) -> None:
    """Refuse options that a saved executable comes too late for.

    Raises:
        CompileError: there is one.
    """
    for name in parser().given(arguments, OF_COMPILING):
        raise CompileError(f"{name} is for compiling, and {arguments.file} is compiled", option="stablexla-compile")


def _work(executable: Executable, signature: Signature, arguments: argparse.Namespace, compiling: float) -> int:
    """Explain and run the program, and execute the other requests."""
    if not explain(executable, arguments):
        return 0
    if arguments.collective_timeout:
        executable.collective_timeout = arguments.collective_timeout
    inputs = device_inputs(arguments, signature, 1 if executable._shardings else executable.num_devices)
    random = random_inputs(arguments, signature)
    if not is_quiet():
        for place, type_, spec in random:
            print(f"{place}: {type_} is {spec}", file=sys.stderr)
    given: Sequence[Any] = inputs[0] if len(inputs) == 1 else inputs
    if arguments.check is not None and (found := check(executable, given, arguments)):
        return found  # without checks the program may never end
    expected = read_expected(signature.results, len(inputs), arguments)
    call = runner(executable, inputs, arguments.time_limit)
    results = call()
    where = console()
    if arguments.print:
        _print(results, signature)
    elif not arguments.json:
        if random:
            show_table(where, ("input", "shape", "values"), random)
            print(file=where.file)
        _show(results, signature, where)
    if arguments.output_dir and not is_quiet():
        _save(results, signature.result_names, arguments.output_dir)
    if arguments.time:
        _time(call, arguments.time, compiling, where, as_json=arguments.json)
    profile(executable, given, arguments)
    code = expect(results, expected, arguments) if expected else 0
    return max(code, compare(executable, given, arguments, where)) if arguments.compare else code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    options = parser()
    arguments = options.parse_args(given)
    if arguments.processes and not arguments.launcher:
        options.error("--processes is for --launcher mpi")
    if (arguments.all or arguments.kernels) and not any((arguments.explain, arguments.profile, arguments.trace)):
        options.error(f"--{'all' if arguments.all else 'kernels'} is for --explain and --profile")
    if (arguments.rtol is not None or arguments.atol) and not arguments.expect:
        options.error(f"--{'rtol' if arguments.rtol is not None else 'atol'} is for --expect")
    if arguments.check_dir and arguments.check is None:
        options.error("--check-dir is for --check")
    if arguments.isolated and not arguments.apart:  # all that reads the program runs there
        return run_apart("stablexla.tools.run", given)
    if arguments.launched:
        return run_launched(arguments.launched, lambda: _run(arguments, given))
    return run_tool(lambda: _run(arguments, given))


if __name__ == "__main__":
    sys.exit(main())
