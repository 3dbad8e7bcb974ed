"""`compile` in another process: what is sent there, and what becomes of its crash."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.computation import XlaComputation
from stablexla.dialects import composites, custom_calls
from stablexla.dialects.errors import CompileError
from stablexla.executable import Executable
from stablexla.interop.load import Program
from stablexla.isolation import wire
from stablexla.isolation.functions import modules_of, rules_of, sendable_composites
from stablexla.isolation.reproducer import keep_reproducer
from stablexla.isolation.wire import Message
from stablexla.isolation.worker import Ended, TooLong, worker
from stablexla.saved import bytecode_of, executable_of
from stablexla.targets.knobs import knobs
from stablexla.targets.options import CompileOptions
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.runtime import container


def compile_isolated(
    program: Program, target: str, num_replicas: int | None, num_partitions: int | None, options: CompileOptions
) -> Executable:
    """As `sx.compile`, with everything that reads or changes the program in another process.

    Raises:
        CompileError: also when that process ended, or took too long.
        UnsupportedError: the program needs functions that another process cannot import.
    """
    kind, data = _sent(program)
    pipeline = pipeline_of(find_target(target), options)
    request = {
        "program": kind,
        "target": target,
        "num_replicas": num_replicas,
        "num_partitions": num_partitions,
        "options": _plain(options),
        "knobs": {name: _text(getattr(knobs, name)) for name in knobs.table()},
        "modules": modules_of(pipeline),
        "rules": rules_of(pipeline),
        "custom_calls": {n: "c" if t.address else "python" for n, t in custom_calls.TARGETS.items()},
        "composites": sendable_composites(composites.REGISTERED, data or _contents(kind)),
    }
    folder = Path(tempfile.mkdtemp(prefix="stablexla-"))
    try:
        return _run(request, data, folder, options.time_limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(request: dict[str, Any], data: bytes, folder: Path, seconds: float | None) -> Executable:
    progress = _Progress()
    try:
        answer, said = _ask(request, data, folder, seconds, progress.told, every_pass=False)
    except Ended as ended:
        culprit = _culprit(request, data, seconds)
        raise _error(f"ended the process ({ended.how})", progress, culprit, folder, tuple(ended.words)) from None
    except TooLong:
        raise _error(f"took more than {seconds:g} s", progress, "", folder, ()) from None
    if said and sys.stderr is not None:
        sys.stderr.write(said)
    if answer.kind == wire.ERROR:
        error = wire.error_of(answer.values)
        if "trace" in answer.values:
            error.add_note(str(answer.values["trace"]))
        raise error
    return executable_of(container.parse(answer.data, "the compiled program"), "the compiled program")


def _ask(
    request: dict[str, Any],
    data: bytes,
    folder: Path,
    seconds: float | None,
    told: Callable[[Message], None],
    *,
    every_pass: bool,
) -> tuple[Message, str]:
    with worker() as process:
        return process.ask({**request, "folder": str(folder), "pass_by_pass": every_pass}, data, told, seconds)


class _Progress:
    """Where the other process is."""

    def __init__(self) -> None:
        self.at: dict[str, Any] = {"stage": "source", "number": 0}
        self.element = ""

    def told(self, message: Message) -> None:
        if message.kind == wire.STAGE:
            self.at, self.element = dict(message.values), ""
        else:
            self.element = str(message.values["pass"])


def _culprit(request: dict[str, Any], data: bytes, seconds: float | None) -> str:
    """The pass at which it ends, found by another run that tells of every pass; "" when it then ends at none."""
    progress = _Progress()
    folder = Path(tempfile.mkdtemp(prefix="stablexla-"))
    try:
        _ask(request, data, folder, seconds, progress.told, every_pass=True)
    except Ended:
        return progress.element
    except TooLong:
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def _error(what: str, progress: _Progress, culprit: str, folder: Path, words: tuple[str, ...]) -> CompileError:
    """The error for a step that ended the process or took too long, with a file that shows it again."""
    at = progress.at
    if "step" not in at:
        return CompileError(f"reading the program {what}", stage="source", diagnostics=words)
    name = at["stage"] or "machine code"
    step = f"step {at['number'] + 1} '{name}'" if at["stage"] else name
    return CompileError(
        f"{at['pipeline']}: {step} {what}" + (f" in {culprit}" if culprit else ""),
        stage=name,
        diagnostics=words,
        reproducer=keep_reproducer(folder / "before", at["number"], at["before"], name, at["step"]),
    )


# ---- what is sent ----------------------------------------------------------------------------------------------------


def _sent(program: Program) -> tuple[dict[str, Any], bytes]:
    if isinstance(program, XlaComputation):
        kind = {
            "kind": "computation",
            "name": program.name,
            "parameter_shapes": list(map(str, program.parameter_shapes)),
            "parameter_names": program.parameter_names,
            "result_shape": str(program.result_shape),
        }
        return kind, bytecode_of(program.module)
    if isinstance(program, str):
        return {"kind": "text"}, program.encode("utf-8", "surrogatepass")
    if isinstance(program, (bytes, bytearray, memoryview)):
        return {"kind": "bytes"}, bytes(program)
    if isinstance(program, Path):
        return {"kind": "path", "path": str(program.absolute())}, b""
    if isinstance(program, hlo_ir.Module):
        return {"kind": "module"}, bytecode_of(program)
    from stablexla.interop.load import load

    return {"kind": "module"}, bytecode_of(load(program))  # or its error


def _contents(kind: dict[str, Any]) -> bytes:
    """What a file holds; nothing when it cannot be read, which the other process will tell."""
    try:
        return Path(kind["path"]).read_bytes()
    except (KeyError, OSError):
        return b""


def _plain(options: CompileOptions) -> dict[str, Any]:
    """The options for the other process."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    del values["isolated"], values["time_limit"], values["rules"]
    if options.pipeline is not None:
        values["pipeline"] = str(options.pipeline)
    return values


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
