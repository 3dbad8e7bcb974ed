"""`compile` in another process: the request, and the error for its crash."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from stablexla.compiling.core import OpenProgram
from stablexla.compiling.program_bytes import bytes_of, contents_of_file
from stablexla.compiling.request import Request
from stablexla.dialects import composites, custom_calls
from stablexla.dialects.custom_calls import CustomCallTarget
from stablexla.dialects.errors import CompileError
from stablexla.executable.executable import Executable
from stablexla.executable.saved import executable_of
from stablexla.interop.loading import load_bytes
from stablexla.processes import wire
from stablexla.processes.functions import modules_of, rules_of, sendable_composites
from stablexla.processes.reproducer import keep_reproducer
from stablexla.processes.wire import Message
from stablexla.processes.worker import WorkerEnded, worker
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.runtime import container


def compile_isolated(asked: Request) -> Executable | OpenProgram:
    """Like `compile_watched`, with everything that reads or changes the program in another process.

    Raises:
        CompileError: also when that process ended, or took too long.
        UnsupportedError: the program needs functions that another process cannot import.
    """
    options, target = asked.options, find_target(asked.target)
    kind, data = bytes_of(asked.program)
    pipeline = pipeline_of(target, options)
    request = {
        "program": kind,
        "entry": asked.entry,
        "target": target.name,
        "num_replicas": asked.num_replicas,
        "num_partitions": asked.num_partitions,
        "options": plain_options(options),
        "knobs": knob_values(),
        "modules": modules_of(pipeline),
        "rules": rules_of(pipeline),
        "custom_calls": {n: kind_of_target(t) for n, t in custom_calls.TARGETS.copy().items()},
        "composites": sendable_composites(composites.REGISTERED, lambda: data or contents_of_file(kind)),
    }
    folder = Path(tempfile.mkdtemp(prefix="stablexla-"))
    try:
        answer = _run(request, data, folder, options.time_limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "waits" in answer.values:
        replicas, partitions = answer.values["waits"]
        return OpenProgram(load_bytes(answer.data, trusted=True), target.name, (replicas, partitions))
    file = container.parse(answer.data, "the compiled program")
    executable = executable_of(file, "the compiled program", pipeline)
    executable._overrides = tuple(answer.values["overrides"])
    return executable


def _run(request: dict[str, Any], data: bytes, folder: Path, seconds: float | None) -> Message:
    progress = _Progress()
    try:
        with worker() as process:
            answer, said = process.ask({**request, "folder": str(folder)}, data, progress.told, seconds)
    except WorkerEnded as ended:
        raise _error(f"ended the process ({ended.how})", progress, folder, tuple(ended.words)) from None
    except TimeoutError:
        raise _error(f"took more than {seconds:g} s", progress, folder) from None
    if said and sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(said)
    if answer.kind == wire.ERROR:
        error = wire.error_of(answer.values)
        if "trace" in answer.values:
            error.add_note(str(answer.values["trace"]))
        raise error
    return answer


class _Progress:
    """The progress of the other process."""

    def __init__(self) -> None:
        self.at: dict[str, Any] = {"stage": "source", "number": 0}
        self.element = ""

    def told(self, message: Message) -> None:
        if message.kind == wire.STAGE:
            self.at, self.element = dict(message.values), ""
        else:
            self.element = str(message.values["pass"])


def _error(what: str, progress: _Progress, folder: Path, words: tuple[str, ...] = ()) -> CompileError:
    """Return the error for a step that ended the process or took too long, with a reproducer."""
    at = progress.at
    if "options" not in at:
        return CompileError(f"reading the program {what}", stage="source", diagnostics=words)
    name = at["stage"] or "machine code"
    step = f"step {at['number'] + 1} '{name}'" if at["stage"] else name
    return CompileError(
        f"{at['pipeline']}: {step} {what}" + (f" in {progress.element}" if progress.element else ""),
        stage=name,
        diagnostics=words,
        reproducer=keep_reproducer(folder / "before", at["number"], at["before"], name, at["options"]),
        loads=[word[7:] for word in shlex.split(at["options"]) if word.startswith("--load=")],
    )


# ---- the request -----------------------------------------------------------------------------------------------------


def kind_of_target(target: CustomCallTarget) -> str:
    """Return the kind of a custom call target's function."""
    return "c" if target.address else "ffi" if target.stages else "python"


def plain_options(options: CompileOptions) -> dict[str, Any]:
    """Return the options for the other process."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    for name in ("isolated", "time_limit", "cache", "rules", "schedules"):
        del values[name]
    if options.pipeline is not None:
        values["pipeline"] = str(options.pipeline)
    return values


def knob_values() -> dict[str, Any]:
    """Return the knobs for the other process, which has no cache."""
    return {name: _text(getattr(knobs, name)) for name in knobs.table() if name != "cache"}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
