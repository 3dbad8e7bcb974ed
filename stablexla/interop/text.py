"""The parser of MLIR text into a verified module; errors have the place and the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as ir
import mlir.ir as upstream

from stablexla.dialects.bracket_depth import DEEPEST, too_deep
from stablexla.dialects.contexts import diagnostics, stablehlo_context, upstream_context
from stablexla.dialects.errors import ParseError, StablexlaError, VerificationError
from stablexla.targets.pipeline.dump import Header
from stablexla.targets.pipeline.messages import messages_of, place_of
from stablexla.targets.pipeline.passes import Side

TEXT = "<text>"
"""What a text without a file is called."""

_LONGEST = 600
_ENDINGS = (".mlir", ".mlirbc", ".stablehlo", ".hlo", ".pb", ".txt")
_PLACE = re.compile(r'"([^"\n]*)":(\d+):(\d+)')
_OF_UPSTREAM = re.compile(r"Dialect `(\w+)' not found")
_UPSTREAM = frozenset(
    ("affine", "arith", "bufferization", "cf", "gpu", "linalg", "llvm", "math", "memref", "nvvm", "scf", "vector")
)
_HLO = re.compile(r"\b(stablehlo|chlo)\.\w")
_COMMENTS = re.compile(r"(?:\s|//[^\n]*\n)*+")
_BEGINNINGS = "MLIR, which begins with module or func.func, or HLO text, with HloModule, ENTRY or a computation"
_ABOUT_AN_OPERATION = re.compile(r"'[\w.]+' op ")


def parse_file(path: Path, text: str, *, side: Side = "stablehlo") -> Any:
    """Parse the text of a file, whose name is then in the locations of all operations."""
    return _parse(lambda kind, context: kind.Module.parseFile(str(path), context), text, str(path), side)


def parse_text(text: str, file: str = TEXT, *, side: Side = "stablehlo") -> Any:
    """Parse a text into a verified module, in this thread's context of StableHLO or of upstream's dialects.

    Args:
        text: MLIR.
        file: what to call it in errors.
        side: which MLIR reads it.

    Raises:
        ParseError: it is no module.
        VerificationError: it is one that breaks a rule.
    """
    return _parse(lambda kind, context: kind.Module.parse(text, context), text, file, side)


def _parse(parse: Callable[[Any, Any], Any], text: str, file: str, side: Side) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ParseError(f"character {problem.start} is half of a surrogate pair", file=file) from None
    if (place := too_deep(text)) is not None:
        raise ParseError(f"brackets nested more than {DEEPEST} deep", file=file, line=place[0], column=place[1])
    kind: Any = ir if side == "stablehlo" else upstream
    context = stablehlo_context() if side == "stablehlo" else upstream_context()
    if side == "stablehlo":
        _refuse_stage(text, file)
    with diagnostics(context) as seen:
        try:
            return parse(kind, context)
        except kind.MLIRError as error:
            refusal = _refusal(
                error, text, file, messages_of(error, seen), lambda t: kind.Module.parse(t, context), side
            )
    raise refusal


def _refuse_stage(text: str, file: str) -> None:
    """Refuse the text of a stage that is lowered: jaxlib's MLIR reads some, and says of others what nobody can use.

    Raises:
        ParseError: it is one.
    """
    header = Header.read(text)
    if header is not None and header.stage not in ("source", "stablehlo") and not _HLO.search(text):
        raise ParseError(
            f"this is the stage {header.stage!r} of a program, and no StableHLO",
            file=file,
            hint="sx.compile, which goes on from there",
            option="stablexla-opt or stablexla-run, which go on from there",
        )


def _refusal(
    error: Any, text: str, file: str, messages: Sequence[str], parse: Callable[[str], object], side: Side
) -> StablexlaError:
    """Return MLIR's first diagnostic as an error with its place."""
    found: Sequence[Any] = error.error_diagnostics
    if not found:
        return ParseError(" ".join(messages) or str(error), file=file)
    message, place = _short(str(found[0].message)), str(found[0].location)
    match = _PLACE.search(place)
    if _is_well_formed(message, text, parse):
        where = f"{file}:{match[2]}:{match[3]}" if match and match[1] in ("-", file) else place_of(place)
        return VerificationError(f"{where or file}: {message}" + _excerpt(text, match, file))
    hint = ""
    if file == TEXT and "\n" not in text and text.strip().endswith(_ENDINGS):
        hint = f"pathlib.Path({text.strip()!r}), if this is the name of a file"
    missing = _OF_UPSTREAM.match(message)
    if missing is not None and missing[1] in _UPSTREAM:
        hint = "the text of a stage, with its first two lines: stablexla-opt --stage=tensor writes them"
    line, column = (int(match[2]), int(match[3])) if match else (0, 0)
    if not hint and side == "stablehlo" and _is_start(text, line, column):
        message, hint = f"this was read as MLIR text: {message}", _BEGINNINGS
    return ParseError(message + _excerpt(text, match, file), file=file, line=line, column=column, hint=hint)


def _is_start(text: str, line: int, column: int) -> bool:
    """Return whether there are only comments before a place."""
    *before, last = text.split("\n", line)[:line] or [""]
    return line > 0 and _COMMENTS.fullmatch("\n".join([*before, last[: column - 1]])) is not None


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ..."


def _is_well_formed(message: str, text: str, parse: Callable[[str], object]) -> bool:
    """Return whether the message is about the meaning of a text, not its syntax."""
    if _ABOUT_AN_OPERATION.match(message):
        return True
    if message.startswith(("expected", "use of undeclared")):
        return False
    # The verifier runs when the whole text was read. So does the parser come to an unknown operation put behind it?
    try:
        parse(f'{text}\n"no.operation"() : () -> ()')
    except (ir.MLIRError, upstream.MLIRError) as error:
        match = _PLACE.search(str(error.error_diagnostics[0].location)) if error.error_diagnostics else None
        return match is not None and int(match[2]) == text.count("\n") + 2
    return False


def _excerpt(text: str, match: re.Match[str] | None, file: str) -> str:
    return excerpt(text, int(match[2]), int(match[3])) if match and match[1] in ("-", file) else ""


def excerpt(text: str, number: int, column: int) -> str:
    """Return the line at fault with a mark below the column."""
    lines = text.split("\n")
    if not 1 <= number <= len(lines):
        return ""
    line = lines[number - 1].rstrip("\r")
    start = max(0, column - 80)
    shown = line[start : start + 110]
    return f"\n    {shown}\n    {' ' * (column - 1 - start)}^"
