"""Programs of strangers are compiled in a process that can read and calculate, and run in another one."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from stablexla.compiling.program_bytes import bytes_of
from stablexla.dialects import custom_calls
from stablexla.dialects.errors import CompileError, ParseError, UnsupportedError
from stablexla.executable.executable import Executable
from stablexla.executable.saved import executable_of
from stablexla.interop.load import Program
from stablexla.processes import wire
from stablexla.processes.compiling import kind_of_target, knob_values, plain_options
from stablexla.processes.worker import Worker, WorkerEnded
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.targets.runtime import container

_LONGEST, _LONGEST_FOR_A_BYTE = 1 << 30, 8
"""Bytes of an answer: these, and so many for each of the program."""
_WRITING = ("dump", "override", "print_after_all", "time")
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)


def compile_sandboxed(
    program: Program,
    entry: str,
    target: str,
    num_replicas: int | None,
    num_partitions: int | None,
    options: CompileOptions,
) -> Executable:
    """Like `sx.compile`, with everything that reads, changes or runs the program in processes that give up all else.

    Raises:
        CompileError: also when the compiling process ended, or took too long.
        UnsupportedError: functions of the user's take part; shapes are left open; or the target is another one.
        ExecutionError: no process can be started to run it in.
    """
    assert options.sandbox is not None
    kind, data = bytes_of(program)
    if kind["kind"] == "path":
        kind, data = {"kind": "bytes"}, _contents(Path(kind["path"]))
    _refuse_functions(target, options)
    request: dict[str, Any] = {
        "program": kind,
        "entry": entry,
        "target": "cpu",
        "num_replicas": num_replicas,
        "num_partitions": num_partitions,
        "options": plain_options(options),
        "knobs": knob_values(),
        "modules": [],
        "rules": [],
        "custom_calls": {name: kind_of_target(t) for name, t in custom_calls.TARGETS.copy().items()},
        "composites": [],
        "folder": None,
    }
    answer = _ask(request, data, options)
    if "waits" in answer.values:
        raise UnsupportedError(
            "a program in a sandbox has known shapes, and this one leaves extents open",
            hint="write the extents into the program, or compile it without a sandbox",
        )
    file = container.parse(answer.data, "the compiled program")
    return executable_of(file, "the compiled program", sandbox=options.sandbox)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", file=str(path)) from None


def _refuse_functions(target: str, options: CompileOptions) -> None:
    """Raise UnsupportedError for what the compiling process would have to import, write or start."""
    found = find_target(target)
    if found.name != "cpu":
        raise UnsupportedError(f"a sandbox compiles for the CPU alone, not for {found.name}", hint='target="cpu"')
    if any(getattr(knobs, name) for name in _WRITING):
        raise UnsupportedError(
            "a sandbox writes no dumps and no times", hint="compile it with isolated=True, to look at it"
        )
    pipeline = pipeline_of(found, replace(options, sandbox=None))
    if pipeline.rules or any(e.is_python and e.bound()[0].is_users for step in pipeline for e in step.elements):
        raise UnsupportedError(
            "a sandbox has stablexla's own rules and passes alone, and some of yours would take part",
            hint="compile it with isolated=True, if you trust the program",
        )


def _ask(request: dict[str, Any], data: bytes, options: CompileOptions) -> wire.Message:
    """Return the answer of a process that compiles this one program."""
    at: list[str] = []
    seconds = options.time_limit
    assert options.sandbox is not None
    given = {"required": options.sandbox.required}
    with closing(Worker([json.dumps(given)], inherits=False)) as process:
        try:
            most = _LONGEST + _LONGEST_FOR_A_BYTE * len(data)
            answer, _ = process.ask(request, data, lambda message: at.append(message.kind), seconds, most)
            error = wire.error_of(answer.values) if answer.kind == wire.ERROR else None
        except WorkerEnded as ended:
            what = "compiling the program" if at else "reading the program"
            raise CompileError(f"{what} ended the process ({ended.how})", diagnostics=tuple(ended.words)) from None
        except TimeoutError:
            raise CompileError(f"compiling the program took more than {seconds:g} s") from None
        except _NONSENSE:
            raise CompileError("the compiling process does not make sense") from None
    if error is not None:
        raise error
    return answer
