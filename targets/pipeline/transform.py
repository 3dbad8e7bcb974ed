"""Pass that applies a schedule: a script of the transform dialect in a file of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mlir.ir as ir

from stablexla.dialects.contexts import diagnostics
from stablexla.dialects.errors import CompileError
from stablexla.dialects.symbols import symbol_of
from stablexla.targets.pipeline.messages import line_of, messages_of
from stablexla.targets.pipeline.passes import module_pass

SCHEDULE = "transform.with_named_sequence"
ENTRY = "__transform_main"
_HEAD = r"^(?:Diagnostic message )?at "
_SAID = re.compile(rf"{_HEAD}(?P<place>loc\(.*?\)): (?P<text>.*?)(?={_HEAD}loc|\Z)", re.MULTILINE | re.DOTALL)


@module_pass("stablexla-transform", "applies a schedule of the transform dialect that stands in the file `script`")
def transform(module: ir.Module, *, script: str = "", entry: str = ENTRY) -> None:
    """Run the named sequence `entry` of the file on the module.

    Raises:
        CompileError: the file cannot be read, is no schedule or has no such sequence, or the schedule fails; with the
            script's own lines.
    """
    from mlir.dialects.transform import interpreter  # 8 ms, for schedules alone

    schedule = read_schedule(script)
    sequence = _sequence(schedule, script, entry)
    with diagnostics(module.context) as seen:
        try:
            interpreter.apply_named_sequence(module.operation, sequence, schedule.operation)
        except (ValueError, ir.MLIRError) as error:
            said = [*_said(str(error)), *messages_of(error, seen)]
            raise CompileError(f"the schedule {script} failed", diagnostics=tuple(said)) from None


def read_schedule(script: str) -> ir.Module:
    """Parse the schedule in a file, in the current context; its locations name the file.

    Raises:
        CompileError: there is no file, or it is no module with named sequences.
    """
    if not script:
        raise CompileError("stablexla-transform needs a script", hint="stablexla-transform{script=schedule.mlir}")
    if not Path(script).is_file():
        raise CompileError(f"there is no schedule {script}")
    context = ir.Context.current
    with diagnostics(context) as seen:
        try:
            schedule = ir.Module.parseFile(script, context)
        except ir.MLIRError as error:
            raise CompileError(f"{script} is no schedule", diagnostics=tuple(messages_of(error, seen))) from None
    if SCHEDULE not in schedule.operation.attributes:
        hint = f"module attributes {{{SCHEDULE}}} {{ ... }}"
        raise CompileError(f"{script} is no schedule: its module has not the attribute {SCHEDULE}", hint=hint)
    return schedule


def _sequence(schedule: ir.Module, script: str, entry: str) -> Any:
    found = {}
    for view in schedule.body.operations:
        op = view.operation
        if op.name == "transform.named_sequence":
            found[symbol_of(op)] = op
    if entry not in found:
        names = ", ".join(f"@{name}" for name in found) or "none"
        raise CompileError(f"{script} has no sequence @{entry}; it has {names}", hint=" or ".join(found))
    blocks = found[entry].regions[0].blocks
    if not len(blocks) or len(blocks[0].arguments) != 1:
        raise CompileError(
            f"the sequence @{entry} of {script} must have a body and one argument, the module",
            hint=f"transform.named_sequence @{entry}(%module: !transform.any_op {{transform.readonly}}) {{ ... }}",
        )
    return found[entry]


def _said(text: str) -> list[str]:
    """Split the interpreter's messages into lines: the first is the error, the others are notes."""
    found = [(m["place"], m["text"].strip()) for m in _SAID.finditer(text)]
    if not found:
        return [text.strip()]
    return [line_of("note" if number else "error", what, place) for number, (place, what) in enumerate(found)]
