"""The options of `stablexla-opt`: `mlir-opt`'s names, with one dash or two, and its own.

A pass may be given as an option, as `-cse` or `-canonicalize="max-iterations=3"`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from itertools import pairwise

from stablexla.dialects.errors import CompileError
from stablexla.targets.pipeline.driver import parse_passes, sides_of_pass
from stablexla.targets.pipeline.pass_list import all_passes
from stablexla.targets.pipeline.passes import PASSES, PREFIX
from stablexla.targets.pipeline.pipelines import Element
from stablexla.targets.pipeline.standard_error import captured_stderr
from stablexla.tools.common import add_compile_options, add_entry_option, add_text_options
from stablexla.tools.parser import Parser, UsageError
from stablexla.tools.user_code import load_python

SEPARATOR = "// -----"
EXAMPLES = """
examples:
  stablexla-opt model.mlir                                  parse, verify, print
  stablexla-opt model.mlir --stage=tensor                   the program lowered to linalg on tensors
  stablexla-opt model.mlir --stage=kernels | stablexla-opt - --stage=llvm
                                                            a stage is resumed from its first line
  stablexla-opt model.mlir -cse -stablexla-lower-to-tensor  passes one by one, of either MLIR or of stablexla
  stablexla-opt model.mlir --pass-pipeline='builtin.module(stablexla-lower-to-tensor,func.func(cse))'
  stablexla-opt model.mlir --stage=llvm --transform-script=tile.mlir --transform-at=kernels
                                                            a schedule of the transform dialect in between
  stablexla-opt model.mlir --load=my_passes.py -my-pass     passes and lowering rules of your own
  stablexla-opt model.mlir --stage=llvm --mlir-print-ir-after=canonicalize --mlir-timing
  stablexla-opt tests.mlir -split-input-file -verify-diagnostics
  stablexla-opt --run-reproducer dump/model-1f2e3d4c/04.llvm.repro.mlir
  stablexla-opt --show-passes=bufferiz                      passes with that in their names, and their options
  stablexla-opt --print-pipeline                            the target's pipeline, a step a line

exit codes: 0 all went well; 1 the input does not parse or verify, or a pass failed; 2 wrong usage
"""

STAGES = (
    "run the target's pipeline up to this step: stablehlo, tensor, kernels, buffers, llvm; for GPUs after buffers gpu, "
    "nvvm, ptx, host, llvm"
)
OPTIONAL_VALUES = {
    "--split-input-file": SEPARATOR,
    "--verify-diagnostics": "all",
    "--verify-each": "1",
    "--show-passes": "",
    "--list-passes": "",
    "--mlir-disable-threading": "1",
    "--mlir-timing": "1",
}
"""Options with an optional value, and their default. A value must follow `=`."""


_CHANGES = "--mlir-print-ir-after-change, or --mlir-print-ir-before=PASS"
_ALL_DIALECTS = "any operation of upstream's dialects, or of StableHLO's, CHLO's, VHLO's and Shardy's: all are known"
HINTS = {
    "--debug": _CHANGES,
    "--debug-only": _CHANGES,
    "--mlir-print-ir-tree-dir": "STABLEXLA_DUMP=DIR before the command: a file for each step of --stage",
    "--show-dialects": _ALL_DIALECTS,
    "--load-dialect-plugin": "--allow-unregistered-dialect",
    "--irdl-file": "--allow-unregistered-dialect",
    "--load-pass-plugin": "--load=FILE.py, with a pass in Python: @sx.module_pass",
    "--mlir-output-format": "--mlir-timing",
    "--mlir-timing-display": "--mlir-timing",
    "--mlir-generate-reproducer": "--mlir-pass-pipeline-crash-reproducer=FILE",
    "--mlir-print-local-scope": "--mlir-print-op-generic, or --mlir-print-debuginfo",
    "--emit-bytecode-version": "stablexla-translate --to=bytecode --bytecode-version=N",
    "--mlir-very-unsafe-disable-verifier-on-parsing": "--verify-each=0, for what passes leave",
}
"""Options of `mlir-opt` that there are not here, and what there is."""


def parser() -> Parser:
    """Return the parser of all options but the passes."""
    description = "Runs passes on a file of StableHLO or of upstream's dialects, and prints what they leave."
    made = Parser("stablexla-opt", description, EXAMPLES, usage="%(prog)s [FILE] [options]")
    made.hints = HINTS
    made.passes = all_passes
    help_ = "MLIR text, bytecode, an artifact or HLO; - is standard input (default)"
    made.add_argument("file", nargs="?", default="-", help=help_)
    _add_work(made)
    _add_reading(made)
    _add_printing(made)
    _add_diagnostics(made)
    add_compile_options(made)
    return made


def _add_work(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("what to run")
    what = group.add_mutually_exclusive_group()
    what.add_argument("--pass-pipeline", metavar="TEXT", help="passes of MLIR and of stablexla: 'builtin.module(...)'")
    what.add_argument("--stage", metavar="NAME", help=STAGES)
    what.add_argument("--run-reproducer", action="store_true", help="run the command in the file's first line")
    what.add_argument(
        *("--show-passes", "--list-passes"), metavar="PATTERN", help="list the passes whose names match, and stop"
    )
    what.add_argument("--print-pipeline", action="store_true", help="print the target's pipeline, and stop")
    add = group.add_argument
    add(
        "--refine-arguments",
        metavar="TYPES",
        help="with --stage: types for the parameters of main, where theirs leave extents open: 'tensor<2x3xf32>,...'",
    )
    add("--from-stage", metavar="NAME", help="the step that the file was written after (default: its first line's)")
    add("--leaves", metavar="NAMES", help="dialects and operations that --pass-pipeline may leave")
    add("--transform-script", metavar="FILE[:ENTRY]", help="a schedule of the transform dialect to apply")
    add("--transform-at", metavar="NAME", help="the step after which it is applied (default: at the end)")
    add("--verify-each", metavar="0|1", help="verify after every pass (default: after each run of passes)")
    add("--dump-pass-pipeline", action="store_true", help="print the passes that are run on standard error")
    add("--mlir-pass-pipeline-crash-reproducer", metavar="FILE", help="where to write a reproducer if a pass fails")
    add("--mlir-disable-threading", metavar="0|1", help="for mlir-opt's sake: there are no threads here")


def _add_reading(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("reading and writing")
    add = group.add_argument
    add("--context", choices=("stablehlo", "upstream"), help="which MLIR reads the file (default: by its operations)")
    add("--allow-unregistered-dialect", action="store_true", help="take operations that no dialect has")
    add_entry_option(made)
    add("--split-input-file", metavar="LINE", help=f"parts between such lines are files of their own ({SEPARATOR})")
    add("-o", dest="output", metavar="FILE", default="-", help="where to write (default: standard output)")
    add("--emit-bytecode", action="store_true", help="write MLIR bytecode")


def _add_printing(made: argparse.ArgumentParser) -> None:
    group = made.add_argument_group("printing; what is printed around passes goes to standard error")
    add = group.add_argument
    for when in ("before", "after"):
        names = {"action": "append", "default": [], "metavar": "PASSES"}
        add(f"--mlir-print-ir-{when}", **names, help=f"print the IR {when} these passes")  # type: ignore[arg-type]
        add(f"--mlir-print-ir-{when}-all", action="store_true", help=f"print the IR {when} every pass")
    add("--mlir-print-ir-after-change", action="store_true", help="print it only where a pass changed it")
    add("--mlir-print-ir-after-failure", action="store_true", help="print it after a pass that failed")
    add("--mlir-print-ir-module-scope", action="store_true", help="for mlir-opt's sake: whole modules are printed")
    add_text_options(group)
    add("--mlir-timing", metavar="0|1", help="print how long each pass took on standard error")


def _add_diagnostics(made: argparse.ArgumentParser) -> None:
    made.add_argument_group("tests").add_argument(
        "--verify-diagnostics",
        metavar="all|only-expected",
        choices=("all", "only-expected"),
        help="check what is said against comments expected-error@+1 {{text}} in the file",
    )


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the options; `passes` holds passes given as options, as a pipeline's text.

    Raises:
        UsageError: passes as options beside something else to run.
        SystemExit: as argparse raises it.
    """
    made = parser()
    known = {option for action in made._actions for option in action.option_strings}
    words = [_normal(word, known) for word in argv]
    for file in _files_to_load(words):
        load_python(file)  # it may register passes that are given as options
    rest, flags = _without_passes(words, known)
    given = made.parse_args(rest)
    given.flags = flags
    other = next((n for n in ("pass_pipeline", "stage", "run_reproducer") if getattr(given, n)), None)
    if flags and other:
        raise UsageError(f"passes are given as options or by --{other.replace('_', '-')}, not both")
    return given


def _normal(word: str, known: set[str]) -> str:
    """Normalize an option: two dashes, its default value when none is given, no `=true` of a flag."""
    match = re.fullmatch(r"--?([a-z][\w-]+)(=.*)?", word, flags=re.DOTALL)
    if match is None or f"--{match[1]}" not in known:
        return word
    name, value = f"--{match[1]}", match[2]
    return f"{name}={OPTIONAL_VALUES[name]}" if value is None and name in OPTIONAL_VALUES else name + (value or "")


def _without_passes(words: Sequence[str], known: set[str]) -> tuple[list[str], list[str]]:
    """Return the other words, and the names of passes with their options."""
    rest, flags = [], []
    for word in words:
        match = re.fullmatch(r"--?([a-z][\w-]+)(?:=(.*))?", word, flags=re.DOTALL)
        if match is None or f"--{match[1]}" in known or not _may_be_pass(match[1]):
            rest.append(word)
        else:
            flags.append(match[1] + ("" if match[2] is None else f"{{{match[2]}}}"))
    return rest, flags


def _may_be_pass(name: str) -> bool:
    """Return whether it is a registered pass, or one of the MLIRs has it."""
    return name in PASSES or name.startswith(PREFIX) or bool(sides_of_pass(name))


def _files_to_load(words: Sequence[str]) -> list[str]:
    after = [file for word, file in pairwise(words) if word == "--load"]
    return after + [word.partition("=")[2] for word in words if word.startswith("--load=")]


def in_its_nest(name: str) -> str:
    """Return a pass in its nest, as `func.func(affine-loop-fusion)`.

    Raises:
        CompileError: options that it does not have.
    """
    element = Element(name)
    for side in () if element.is_python else sides_of_pass(element.name):
        found = re.search(r"restricted to '(\S+)'", _refusal(element, side))
        if found:
            return f"{found[1]}({name})"
    return name


def _refusal(element: Element, side: str) -> str:
    with captured_stderr():  # LLVM repeats its message on an option's value when the passes are read
        try:
            parse_passes((element,), "stablehlo" if side == "stablehlo" else "upstream")
        except CompileError as error:
            return str(error)
    return ""
