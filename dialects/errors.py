"""Errors that stablexla raises to its users, all derived from `StablexlaError`.

A message has up to five parts: the operation, the rule with its number, the operands' shapes, the user's own line,
and a way out when one is known. The builder finds the user's line; here it is only printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class SourceLine:
    """A place in the user's program: file, line, function and the text of the line when it can be read."""

    file: str
    line: int
    function: str = ""
    text: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        if self.function and self.function != "<module>":
            where += f" in {self.function}"
        return f"{where}:  {self.text}" if self.text else where


class StablexlaError(Exception):
    """Base of all errors of this package.

    Attributes:
        summary: the first line, without details.
        operation: name of the operation at fault, or "".
        rule: number of the broken rule in the StableHLO specification, such as "C1", or "".
        operands: name and printed shape of each operand that matters.
        source: the user's line, when known.
        hint: a way out, when one is known.
        option: that way out on the command line, where it is another one.
    """

    def __init__(
        self,
        summary: str,
        *,
        operation: str = "",
        rule: str = "",
        operands: Mapping[str, object] | None = None,
        source: SourceLine | None = None,
        hint: str = "",
        option: str = "",
    ) -> None:
        self.summary = summary
        self.operation = operation
        self.rule = rule
        self.operands = dict(operands or {})
        self.source = source
        self.hint = hint
        self.option = option
        super().__init__(self._message())

    def _message(self) -> str:
        head = f"{self.operation}: {self.summary}" if self.operation else self.summary
        lines = [f"{head} ({self.rule})" if self.rule else head]
        width = max((len(name) for name in self.operands), default=0)
        lines += [f"  {name:<{width}}  {shape}" for name, shape in self.operands.items()]
        if self.source is not None:
            lines.append(f"  at {self.source}")
        if self.hint:
            lines.append(f"  try: {self.hint}")
        return escaped("\n".join(lines))

    def on_command_line(self) -> str:
        """Return the message with the tools' way out."""
        hint, option = (escaped(f"\n  try: {way_out}") for way_out in (self.hint, self.option))
        return str(self).replace(hint, option) if self.option else str(self)


class ShapeError(StablexlaError):
    """A user's operands break a rule of the operation; raised where the operation is built."""

    def add_source(self, source: SourceLine | None) -> None:
        """Name the user's line, which was not known where the error was made."""
        self.source = source
        self.args = (self._message(),)


class ParseError(StablexlaError):
    """Text or bytes that are not a module. `file`, `line` and `column` (from 1) say where."""

    def __init__(
        self,
        summary: str,
        *,
        file: str = "<input>",
        line: int = 0,
        column: int = 0,
        hint: str = "",
        option: str = "",
    ) -> None:
        self.file, self.line, self.column = file, line, column
        place = f"{file}:{line}:{column}: " if line else f"{file}: "
        super().__init__(place + summary, hint=hint, option=option)


class VerificationError(StablexlaError):
    """A module that parses but breaks a rule of its dialects."""


class UnsupportedError(StablexlaError):
    """A valid program or option that this build does not support yet."""


class CompileError(StablexlaError):
    """A step of a pipeline failed. `stage` is the step's name, `diagnostics` MLIR's messages,
    `reproducer` the path of a file that shows the failure again, or "", and `loads` the user's Python files that it
    needs."""

    def __init__(
        self,
        summary: str,
        *,
        stage: str = "",
        diagnostics: tuple[str, ...] = (),
        reproducer: str = "",
        loads: Sequence[str] = (),
        hint: str = "",
        option: str = "",
    ) -> None:
        self.stage, self.diagnostics, self.reproducer, self.loads = stage, diagnostics, reproducer, tuple(loads)
        details = "".join(f"\n  {line}" for text in diagnostics for line in text.splitlines())
        if reproducer:
            options = [shlex.quote(reproducer), *(f"--load={shlex.quote(file)}" for file in loads)]
            details += f"\n  reproduce: stablexla-opt --run-reproducer {' '.join(options)}"
        super().__init__(summary + details, hint=hint, option=option)
        self.summary = summary


class LoadError(StablexlaError):
    """A saved program that cannot be used: the file is damaged, or was made for another machine or version."""


class ExecutionError(StablexlaError):
    """Arguments that do not fit an executable, or a failure while it runs."""


class OutOfMemoryError(ExecutionError):
    """A run needs more memory than there is, or than `sx.set_memory_limit` allows. The program can be called again.

    Attributes:
        needed: bytes that the run, or the allocation that failed, asked for; 0 for a structure of the runtime itself.
        available: bytes that there were; None where that is not known.
        result: the number of the largest result, where that takes the most; else None.
    """

    def __init__(
        self,
        summary: str,
        *,
        needed: int,
        available: int | None = None,
        result: int | None = None,
        operands: Mapping[str, object] | None = None,
        source: SourceLine | None = None,
        hint: str = "",
    ) -> None:
        self.needed, self.available, self.result = needed, available, result
        super().__init__(summary, operands=operands, source=source, hint=hint)


class CollectiveError(ExecutionError):
    """A collective failed: a device did not arrive in time, or cannot arrive any more.

    Attributes:
        place: the operation's place in the user's program, or "".
        group: the participating devices, by number.
        arrived: those of them that arrived.
        missing: for the others where they are.
    """

    def __init__(
        self,
        summary: str,
        *,
        operation: str = "",
        place: str = "",
        group: Sequence[int] = (),
        arrived: Sequence[int] = (),
        missing: Mapping[int, str] | None = None,
        hint: str = "",
    ) -> None:
        self.place, self.group, self.arrived = place.strip(), tuple(group), tuple(arrived)
        self.missing = dict(missing or {})
        lines = {"group": _listed(self.group), "arrived": _listed(self.arrived)} if self.group else {}
        lines |= {f"device {device}": where for device, where in self.missing.items()}
        super().__init__(
            summary + (f"\n  {self.place}" if place else ""), operation=operation, operands=lines, hint=hint
        )


class CheckError(ExecutionError, FloatingPointError):
    """A checked run made a NaN, an infinity or an overflow. `finding` has the operation, the index and the values.

    It is a `FloatingPointError` as well, which JAX raises.
    """

    def __init__(self, summary: str, *, finding: object = None) -> None:
        self.finding = finding
        super().__init__(summary)


def _listed(devices: Sequence[int]) -> str:
    return f"device{'' if len(devices) == 1 else 's'} {', '.join(map(str, devices))}" if devices else "nobody"


class ReplicationWarning(UserWarning):
    """In a sharded program every device computes an operation on whole arrays; the warning names the operation."""


class CheckWarning(UserWarning):
    """A checked run had an integer division by zero, an index out of range, or a shift that was too wide."""
