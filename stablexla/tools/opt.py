"""`stablexla-opt`: like `mlir-opt`, for both MLIRs and Python passes; runs any part of a pipeline."""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any

from stablexla.compiling.output_files import check_output
from stablexla.compiling.staged import StagedText
from stablexla.dialects.contexts import (
    Diagnostic,
    listening,
    stablehlo_context,
    unregistered_allowed,
    upstream_context,
)
from stablexla.dialects.errors import CompileError, StablexlaError
from stablexla.dialects.rules import each_used
from stablexla.interop.entry import with_entry
from stablexla.targets.pipeline.driver import check_pipeline, copy_of, run_pipeline, side_of
from stablexla.targets.pipeline.dump import Header, signature_as_written, signature_or_none
from stablexla.targets.pipeline.options import DEFAULT_TARGET, MAIN
from stablexla.targets.pipeline.pipelines import LOWER, Pipeline, Step
from stablexla.targets.pipeline.printing import PassTimes, pass_names
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.signature.interface import Signature
from stablexla.targets.stablehlo.imports.shapes.refinement import refining_step
from stablexla.tools.common import FAILED, compile_options, form_of, read_input, run_tool, tell
from stablexla.tools.isolated_tool import is_to_run_apart, run_apart
from stablexla.tools.optimizing.expected import compare
from stablexla.tools.optimizing.input import Part, split_input
from stablexla.tools.optimizing.options import SEPARATOR, in_its_nest, parse, parser
from stablexla.tools.optimizing.passes import show_passes
from stablexla.tools.optimizing.watcher import OptWatcher, printing_of
from stablexla.tools.parser import UsageError
from stablexla.tools.terminal import highlighted, print_errors
from stablexla.tools.user_code import rule_of

PASSES, TRANSFORM = "passes", "transform"
"""The step of passes that are given, and the one that `--transform-script` adds."""


class Job:
    """The work on each part of the input."""

    def __init__(self, given: argparse.Namespace, target: Pipeline) -> None:
        self._given = given
        self._target = target
        self._times = PassTimes() if given.mlir_timing in ("1", "true") else None

    def run(self, part: Part) -> bytes:
        """Return the output of a part, as text or bytecode.

        Raises:
            StablexlaError: as the reader or a pass raised it.
            UsageError: the options do not fit the input.
        """
        start = self._start(part)
        pipeline = self._pipeline(part, start)
        side = self._given.context or part.side(start, self._target)
        if self._given.stage is not None and start == "source" and side == "upstream":
            raise UsageError(f"{part.file} is no StableHLO and does not say which stage it is: --from-stage=NAME")
        self._check_printed(pipeline)
        check_pipeline(pipeline, side)
        if self._given.dump_pass_pipeline:
            print("\n".join(step.text for step in pipeline), file=sys.stderr)
        listens = self._given.verify_diagnostics is not None
        with self._timed("Parser"):
            module = part.read_plainly(side) if listens else part.read(side)
            if side == "stablehlo":
                module = with_entry(module, self._given.entry)
        signature = part.header.signature if part.header else None
        if signature is None and not self._given.refine_arguments:
            signature = signature_as_written(module) if self._given.from_stage else signature_or_none(module)
        source = copy_of(module)
        watcher = OptWatcher(self._given, Path(part.file).stem, pipeline, source, self._times)
        # A run that is repeated to find the pass that failed would say everything twice.
        again = None if listens else lambda: copy_of(source)
        lowers = any(element.name == LOWER for step in pipeline for element in step.parts)
        with each_used(pipeline.rules if lowers else ()):
            left = run_pipeline(module, pipeline, watcher=watcher, again=again)
        with self._timed("Output"):
            stage = self._stage_after(start, pipeline, side_of(left) == side)
            return self._written(left, stage, self._command(part.file, pipeline), signature)

    def _check_printed(self, pipeline: Pipeline) -> None:
        printing = printing_of(self._given)
        run = list(dict.fromkeys(name for step in pipeline for part in step.parts for name in pass_names(part)))
        for option, names in (("before", printing.before), ("after", printing.after)):
            for name in sorted(names.difference(run)):
                near = difflib.get_close_matches(name, run, n=1)
                way = f"{near[0]}?" if near else "--dump-pass-pipeline shows those that are"
                raise UsageError(f"--mlir-print-ir-{option}={name}: no such pass is run; {way}")

    def report(self) -> None:
        """Print the times on request."""
        if self._times is not None:
            print(self._times.report(), file=sys.stderr)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        if self._times is not None:
            self._times.begin()
        yield
        if self._times is not None:
            self._times.end(what, "")

    def _start(self, part: Part) -> str:
        """Return the stage of a part."""
        header = part.header
        start: str = self._given.from_stage or (header.stage if header else "source")
        return start if start in self._target else "source"

    def _pipeline(self, part: Part, start: str) -> Pipeline:
        """Return the steps to run."""
        given = self._given
        if given.stage is not None:
            return self._with_schedule(self._up_to(given.stage, start))
        text, leaves = given.pass_pipeline or "", given.leaves
        rules = given.rule
        if given.run_reproducer:
            text, leaves, rules = _reproduced(part.header, given.load)
        elif given.flags:
            text = ",".join(in_its_nest(flag) for flag in given.flags)
        allowed = None if leaves is None else frozenset(filter(None, leaves.split(",")))
        steps = [Step(PASSES, text, allowed)] if text.strip() or leaves else []
        pipeline = Pipeline("stablexla-opt", steps, self._target.rules)
        return self._with_schedule(pipeline.with_rules(*map(rule_of, rules)))

    def _up_to(self, stage: str, start: str) -> Pipeline:
        rest = self._target if start == "source" else self._target.after(start)
        if start == "source" and self._given.refine_arguments:
            rest = Pipeline(rest.name, [refining_step(self._given.refine_arguments), *rest], rest.rules)
        if stage == start:
            return Pipeline(self._target.name, [], self._target.rules)
        if stage not in rest:
            raise UsageError(f"the input is at stage {start!r} already, which is after {stage!r}")
        return rest.up_to(stage)

    def _with_schedule(self, pipeline: Pipeline) -> Pipeline:
        """Add the step that applies the user's schedule."""
        given = self._given
        if given.transform_script is None:
            return pipeline
        file, _, entry = given.transform_script.partition(":")
        entry = f" entry={entry}" if entry else ""
        step = Step(TRANSFORM, f"stablexla-transform{{script='{Path(file).absolute()}'{entry}}}")
        if given.transform_at is None:
            return Pipeline(pipeline.name, [*pipeline, step], pipeline.rules)
        if given.transform_at not in pipeline:
            names = " or ".join(pipeline.names) or "none"
            raise UsageError(f"--transform-at={given.transform_at}: the steps that are run are {names}")
        return pipeline.inserting(step, after=given.transform_at)

    def _stage_after(self, start: str, pipeline: Pipeline, same_side: bool) -> str | None:
        """Return the stage that the output is at: one or more passes on a stage's file leave it at that stage.

        The passes of the next step, as the first line of a dump has them, make the next stage.
        """
        if self._given.stage is not None:
            stage: str = self._given.stage
            return stage
        following = (self._target if start == "source" else self._target.after(start)).steps[:1]
        if [step.passes for step in following] == [step.passes for step in pipeline]:
            return following[0].name if following else start
        return start if start != "source" and same_side else None

    def _command(self, file: str, pipeline: Pipeline) -> str:
        """Return the command line of the output's first line."""
        given = self._given
        words = [("--load", str(Path(name).absolute())) for name in given.load] + [("--rule", r) for r in given.rule]
        if given.stage is not None:
            words.append(("--stage", given.stage))
        words += [("--pass-pipeline", step.text) for step in pipeline if step.name == PASSES]
        others = {"--target": DEFAULT_TARGET, "--entry": MAIN, "--refine-arguments": None}
        for option, default in (others | {"--transform-script": None, "--transform-at": None}).items():
            value = getattr(given, option.removeprefix("--").replace("-", "_"))
            words += [(option, value)] if value and value != default else []
        return " ".join(["stablexla-opt", shlex.quote(file), *(f"{name}={shlex.quote(text)}" for name, text in words)])

    def _written(self, module: Any, stage: str | None, command: str, signature: Signature | None) -> bytes:
        if self._given.emit_bytecode:
            buffer = BytesIO()
            module.operation.write_bytecode(buffer)
            return buffer.getvalue()
        special = find_target(self._given.target).texts.get(stage or "")
        text = special(module) if special is not None else form_of(self._given).text(module)
        if stage is not None:
            text = f"{Header(stage, command, None if special else signature)}\n{text}"
        return text.encode(errors="surrogateescape")


def _reproduced(header: Header | None, loaded: Sequence[str]) -> tuple[str, str | None, list[str]]:
    """Return the passes, legal dialects and rules of a reproducer's first line."""
    words = [word.partition("=") for word in (shlex.split(header.command) if header else [])]
    given = {name: value for name, _, value in words}
    if "--pass-pipeline" not in given:
        raise UsageError("the first line of a reproducer holds its command, and this file's does not")
    files = [shlex.quote(f"--load={value}") for name, _, value in words if name == "--load"]
    if files and not loaded:
        raise UsageError(f"the reproducer needs {' '.join(files)}, which runs what it names: give it yourself")
    return given["--pass-pipeline"], given.get("--leaves"), [value for name, _, value in words if name == "--rule"]


def _run_parts(job: Job, parts: Sequence[Part], verified: str | None) -> tuple[list[bytes], int]:
    """Return the output of each part, and the exit code; a failing part does not stop the others.

    Args:
        verified: what `-verify-diagnostics` says: errors that a part expects are fine; None without it.
    """
    written, code = [], 0
    for part in parts:
        said: list[Diagnostic] = []
        with nullcontext() if verified is None else listening(said.append):
            try:
                written.append(job.run(part))
            except StablexlaError as error:
                if verified is None:
                    tell(error)
                    code = FAILED
                elif isinstance(error, CompileError) and not said and not error.stage:
                    raise
                elif not any(one.severity == "error" for one in said):  # a pass written in Python raises its own error
                    said.append(Diagnostic("error", str(error), str(error)))
                written.append(b"")
        only = verified == "only-expected"
        for complaint in [] if verified is None else compare(part.text, said, part.file, only_expected=only):
            print_errors(complaint)
            code = FAILED
    return written, code


def _check_names(given: argparse.Namespace, target: Pipeline) -> None:
    for name in filter(None, (given.stage, given.from_stage, given.transform_at)):
        if name not in target and not (name == "source" and name != given.transform_at):
            near = difflib.get_close_matches(name, target.names, n=1) or target.names
            raise UsageError(f"{target.name} has no step {name!r}; {' or '.join(near)}?")
    if given.emit_bytecode and given.split_input_file:
        raise UsageError("bytecode holds one module, so that --emit-bytecode and --split-input-file do not go together")


def _run(given: argparse.Namespace) -> int:
    lowered = StagedText.of(Path(given.file)) if given.target == DEFAULT_TARGET and given.file != "-" else None
    if lowered is not None:
        given.target = lowered.header.target  # of the stage at which the file is
    target = pipeline_of(find_target(given.target), compile_options(given))
    if given.show_passes is not None:
        return show_passes(given.show_passes)
    if given.print_pipeline:
        print(target)
        return 0
    _check_names(given, target)
    if given.output != "-":
        check_output(given.output)
    data, file = read_input(given.file)
    separator = given.split_input_file
    parts = [Part(data, file, whole=file == given.file and given.file != "-")]
    if separator is not None:
        parts = [Part(each, file) for each in split_input(data, separator)]
    job = Job(given, target)
    contexts = (stablehlo_context(), upstream_context()) if given.allow_unregistered_dialect else ()
    with unregistered_allowed(*contexts):
        written, code = _run_parts(job, parts, given.verify_diagnostics)
    _write(given, written, f"\n{separator or SEPARATOR}\n".encode(), code)
    job.report()
    return code


def _write(given: argparse.Namespace, written: Sequence[bytes], between: bytes, code: int) -> None:
    if given.output != "-":
        if code == 0:
            Path(given.output).write_bytes(between.join(written))
        return
    sys.stdout.flush()
    data = highlighted(between.join(written), sys.stdout)
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(data)
    else:
        sys.stdout.write(data.decode(errors="replace"))
    sys.stdout.flush()


def _run_with(argv: Sequence[str]) -> int:
    given = parse(argv)
    return run_apart("stablexla.tools.opt", argv, given.time_limit) if is_to_run_apart(given) else _run(given)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return its exit code."""
    return run_tool(lambda: _run_with(sys.argv[1:] if argv is None else argv), lambda said: parser().refuse(said))


if __name__ == "__main__":
    sys.exit(main())
