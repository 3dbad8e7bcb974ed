"""`stablexla-opt`: as `mlir-opt`, for both MLIRs and the passes written in Python; runs any part of a pipeline."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stablexla.dialects.errors import ParseError, StablexlaError
from stablexla.interop.load import BYTECODE, load_bytes, parse_file, parse_text
from stablexla.targets.driver import copy_of, run_pipeline, side_after
from stablexla.targets.dump import Header, KnobWatcher, assembly
from stablexla.targets.knobs import knobs
from stablexla.targets.passes import PASSES, Side
from stablexla.targets.pipeline import Pipeline, Step
from stablexla.targets.registry import find_target
from stablexla.tools.common import FAILED, USAGE, add_compile_options, compile_options, read_input, run_tool, tell

SEPARATOR = "// -----"
EXAMPLES = """
examples:
  stablexla-opt model.mlir                                  parse, verify, print
  stablexla-opt model.mlir --stage=tensor                   the program lowered to linalg on tensors
  stablexla-opt model.mlir --stage=kernels | stablexla-opt - --stage=llvm
                                                            a stage is resumed from its first line
  stablexla-opt model.mlir --pass-pipeline='builtin.module(stablexla-lower-to-tensor,cse)'
  stablexla-opt dump/model-1f2e3d4c/02.kernels.mlir --stage=buffers --mlir-print-ir-after-all
  stablexla-opt --run-reproducer dump/model-1f2e3d4c/04.llvm.repro.mlir
  stablexla-opt --list-passes                               the passes written in Python
  stablexla-opt --print-pipeline                            the target's pipeline, a step a line

exit codes: 0 all went well; 1 the input does not parse or verify, or a pass failed; 2 wrong usage
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stablexla-opt",
        description="Runs passes on a file of StableHLO or of upstream's dialects, and prints what they leave.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "file", nargs="?", default="-", help="MLIR text, bytecode or a portable artifact; - is standard input (default)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--pass-pipeline", metavar="TEXT", help="passes of MLIR and of stablexla: 'builtin.module(...)'")
    what.add_argument("--stage", metavar="NAME", help="run the target's pipeline up to this step")
    what.add_argument("--run-reproducer", action="store_true", help="run the command in the file's first line")
    what.add_argument("--list-passes", action="store_true", help="list the passes written in Python, and stop")
    what.add_argument("--print-pipeline", action="store_true", help="print the target's pipeline, and stop")
    add(
        "--from-stage",
        metavar="NAME",
        help="the step that the file was written after (default: as its first line says)",
    )
    add("--context", choices=("stablehlo", "upstream"), help="which MLIR reads the file (default: by its operations)")
    add("-o", dest="output", metavar="FILE", default="-", help="where to write (default: standard output)")
    add(
        *("--split-input-file", "-split-input-file"),
        action="store_true",
        help=f"treat the parts between lines {SEPARATOR} as files of their own",
    )
    add(
        *("--mlir-print-ir-after-all", "-mlir-print-ir-after-all"),
        action="store_true",
        help="print the IR after every pass on standard error",
    )
    add("--mlir-print-debuginfo", action="store_true", help="print locations")
    add_compile_options(parser)
    return parser


class UsageError(Exception):
    """Options that do not go together."""


@dataclass(frozen=True)
class Job:
    """What to do with each part of the input."""

    arguments: argparse.Namespace
    target: Pipeline

    def run(self, data: bytes, file: str) -> str:
        """The text that the passes leave.

        Raises:
            StablexlaError: as the reader or a pass raised it.
            UsageError: the options do not fit the input.
        """
        text = "" if data.startswith(BYTECODE) else _decode(data, file)
        header = Header.read(text.lstrip("\n"))
        start = self.arguments.from_stage or (header.stage if header else "source")
        if start not in ("source", *self.target.names):
            start = "source"
        pipeline = self._pipeline(start, header)
        module = self._read(data, text, file, start)
        source = copy_of(module)
        with knobs.scoped(print_after_all=self.arguments.mlir_print_ir_after_all or knobs.print_after_all):
            watcher = _Watcher(Path(file).stem, pipeline, source)
            left = run_pipeline(module, pipeline, watcher=watcher, again=lambda: copy_of(source))
        printed = assembly(left, debug_info=self.arguments.mlir_print_debuginfo)
        return self._header(file) + printed

    def _pipeline(self, start: str, header: Header | None) -> Pipeline:
        """The steps to run."""
        given = self.arguments
        if given.run_reproducer:
            return _one_step(_pipeline_of(header))
        if given.stage is None:
            return _one_step(given.pass_pipeline or "")
        rest = self.target if start == "source" else self.target.after(start)
        if given.stage == start:
            return Pipeline(self.target.name, [])
        if given.stage not in rest and given.stage in self.target:
            raise UsageError(f"the input is at stage {start!r} already, which is after {given.stage!r}")
        return rest.up_to(given.stage)

    def _read(self, data: bytes, text: str, file: str, start: str) -> Any:
        side: Side = self.arguments.context or _side(text, start, self.target)
        if not text and side == "stablehlo":
            return load_bytes(data, file)
        if self.arguments.split_input_file or file == "<stdin>":
            return parse_text(text, file, side=side)
        return parse_file(Path(file), text, side=side)

    def _header(self, file: str) -> str:
        if self.arguments.stage is None:
            return ""
        return f"{Header(self.arguments.stage, f'stablexla-opt {shlex.quote(file)} --stage={self.arguments.stage}')}\n"


class _Watcher(KnobWatcher):
    """As the knobs say, without reproducers: the input is in the user's hands."""

    def failed(self, number: int, step: Step, before: Any) -> str:
        return ""


def _one_step(passes: str) -> Pipeline:
    return Pipeline("stablexla-opt", [Step("passes", passes)] if passes.strip() else [])


def _pipeline_of(header: Header | None) -> str:
    for word in shlex.split(header.command) if header else ():
        if word.startswith("--pass-pipeline="):
            return word.removeprefix("--pass-pipeline=")
    raise UsageError("the first line of a reproducer holds its command, and this file's does not")


def _side(text: str, start: str, target: Pipeline) -> Side:
    """Which MLIR an input is for: by its stage when that is known, else by its operations."""
    if start != "source":
        return side_after(target, start)
    if not text or re.search(r"\b(stablehlo|chlo|vhlo|sdy)\.|#stablehlo|mhlo\.", text):
        return "stablehlo"
    bare = not re.search(r"^\s*(?:%\S+ = )?\"?(?!func|return|module|builtin)[a-z]\w*\.\w", text, flags=re.MULTILINE)
    return "stablehlo" if bare else "upstream"


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ParseError("neither MLIR text nor MLIR bytecode", file=file) from None


def split_input(data: bytes) -> list[bytes]:
    """The parts between separators, each with as many empty lines before it as keep its line numbers right.

    >>> split_input(b"a\\n// -----\\nb\\n")
    [b'a\\n', b'\\n\\nb\\n']
    """
    parts, start = [], 0
    lines = data.splitlines(keepends=True)
    for at, line in enumerate([*lines, SEPARATOR.encode()]):
        if line.strip() == SEPARATOR.encode():
            parts.append(b"\n" * start + b"".join(lines[start:at]))
            start = at + 1
    return parts


def list_passes() -> str:
    """The registered passes with their options, a pass a line or two."""
    lines = []
    for name, found in sorted(PASSES.items()):
        options = " ".join(f"{o.name}={o.default!r}" for o in found.options.values())
        lines.append(f"{name}" + (f"{{{options}}}" if options else ""))
        lines.append(f"    {found.summary}  [{found.side}]")
    return "\n".join(lines)


def _run(arguments: argparse.Namespace) -> int:
    target = find_target(arguments.target).pipeline(compile_options(arguments))
    if arguments.list_passes or arguments.print_pipeline:
        print(list_passes() if arguments.list_passes else target)
        return 0
    for name in filter(None, (arguments.stage, arguments.from_stage)):
        if name != "source" and name not in target:
            near = difflib.get_close_matches(name, target.names, n=1) or target.names
            raise UsageError(f"{target.name} has no step {name!r}; {' or '.join(near)}?")
    data, file = read_input(arguments.file)
    job = Job(arguments, target)
    texts, code = [], 0
    for part in split_input(data) if arguments.split_input_file else [data]:
        try:
            texts.append(job.run(part, file))
        except StablexlaError as error:
            tell(error)
            code = FAILED
    text = f"\n{SEPARATOR}\n".join(texts)
    if arguments.output == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    elif code == 0:
        Path(arguments.output).write_text(text)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """The tool; returns its exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        return run_tool(lambda: _run(arguments))
    except UsageError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
