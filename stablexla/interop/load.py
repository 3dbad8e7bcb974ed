"""Takes a program in any of the forms in which it may come, and gives a verified StableHLO module of this thread.

Files are read here; what is done with the module is up to the compiler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import jaxlib.mlir.ir as ir
import mlir.ir as upstream
from jaxlib.mlir.dialects import stablehlo

from stablexla.computation import XlaComputation
from stablexla.dialects.contexts import diagnostics, stablehlo_context, upstream_context
from stablexla.dialects.errors import ParseError, StablexlaError, UnsupportedError, VerificationError
from stablexla.interop import bytecode
from stablexla.targets.driver import copy_of
from stablexla.targets.messages import messages_of, place_of
from stablexla.targets.passes import Side

Program: TypeAlias = XlaComputation | str | bytes | Path | ir.Module

BYTECODE = bytecode.MAGIC
ARTIFACT = b"StableHLO_v"
_TEXT = "<text>"
_BYTES = "<bytes>"
_PLACE = re.compile(r'"([^"\n]*)":(\d+):(\d+)')
_ABOUT_AN_OPERATION = re.compile(r"'[\w.]+' op ")


def load(program: Program) -> ir.Module:
    """A verified StableHLO module that nobody else holds.

    Args:
        program: an `XlaComputation`; MLIR text; MLIR bytecode or a StableHLO portable artifact; a `pathlib.Path` to
            any of these; a module of jaxlib's MLIR, which is copied.

    Raises:
        ParseError: it is no module; the error has file, line and column.
        VerificationError: it is one, and breaks a rule of its dialects.

    >>> module = load("func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    >>> [op.name.value for op in module.body.operations]
    ['main']
    """
    if isinstance(program, XlaComputation):
        return _copy(program.module)
    if isinstance(program, Path):
        return _load_file(program)
    if isinstance(program, str):
        return parse_text(program, _TEXT)
    if isinstance(program, (bytes, bytearray, memoryview)):
        return load_bytes(bytes(program), _BYTES)
    if isinstance(program, ir.Module):
        return _copy(program)
    raise ParseError(
        f"a {type(program).__name__} is no program",
        file="<object>",
        hint="an XlaComputation, MLIR text (str), bytecode (bytes), a pathlib.Path, or a jaxlib.mlir.ir.Module",
    )


def _load_file(path: Path) -> ir.Module:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", file=str(path)) from None
    if data.startswith(BYTECODE):
        return load_bytes(data, str(path))
    return parse_file(path, _decode(data, str(path)))


def load_bytes(data: bytes, file: str = _BYTES) -> ir.Module:
    """As `load`, for the contents of the file of that name: bytecode, a portable artifact or text.

    Bytecode that was cut off is refused. What stands inside it is trusted by MLIR's reader: it may crash on bytes that
    were damaged, or made to harm.
    """
    if not data.startswith(BYTECODE):
        return parse_text(_decode(data, file), file)
    if not bytecode.is_complete(data):
        raise ParseError("bytecode that ends too early, or is none", file=file)
    context = stablehlo_context()
    with diagnostics(context) as seen, _told_to_handlers(context):
        try:
            if ARTIFACT in data[:64]:
                module = stablehlo.deserialize_portable_artifact(context, data)
            else:
                module = ir.Module.parse(data, context)
            for op in module.body.operations:
                _ = op.operation.name, op.attributes["sym_name"].value if "sym_name" in op.attributes else ""
        except (ir.MLIRError, ValueError, RuntimeError) as error:  # RuntimeError: a name that is no text
            said = [*messages_of(error, seen), str(error)]
            raise ParseError(said[0].removeprefix("error: "), file=file) from None
    return module


@contextmanager
def _told_to_handlers(context: ir.Context) -> Iterator[None]:
    """Lets diagnostics go to handlers only: to put one that is no UTF-8 into an exception would end the process."""
    context.emit_error_diagnostics = True
    try:
        yield
    finally:
        context.emit_error_diagnostics = False


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ParseError("neither MLIR text nor MLIR bytecode", file=file) from None


def parse_file(path: Path, text: str, *, side: Side = "stablehlo") -> Any:
    """As `parse_text`, for the text of a file, whose name then stands in the locations of all operations."""
    return _parse(lambda kind, context: kind.Module.parseFile(str(path), context), text, str(path), side)


def parse_text(text: str, file: str = _TEXT, *, side: Side = "stablehlo") -> Any:
    """The verified module of a text, in this thread's context of StableHLO or of upstream's dialects.

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
    kind: Any = ir if side == "stablehlo" else upstream
    context = stablehlo_context() if side == "stablehlo" else upstream_context()
    with diagnostics(context) as seen:
        try:
            return parse(kind, context)
        except kind.MLIRError as error:
            refusal = _refusal(error, text, file, messages_of(error, seen), lambda t: kind.Module.parse(t, context))
    raise refusal


def _refusal(
    error: Any, text: str, file: str, messages: Sequence[str], parse: Callable[[str], object]
) -> StablexlaError:
    """The first thing that MLIR said, as an error with its place."""
    found: Sequence[Any] = error.error_diagnostics
    if not found:
        return ParseError(" ".join(messages) or str(error), file=file)
    message, place = str(found[0].message), str(found[0].location)
    match = _PLACE.search(place)
    if '`!"quant"<' in message:
        where = f" ({file}:{match[2]}:{match[3]})" if match else ""
        return UnsupportedError(f"quantised types are not there yet{where}" + _excerpt(text, match, file))
    if _is_well_formed(message, text, parse):
        where = f"{file}:{match[2]}:{match[3]}" if match and match[1] in ("-", file) else place_of(place)
        return VerificationError(f"{where or file}: {message}" + _excerpt(text, match, file))
    hint = ""
    if file == _TEXT and "\n" not in text and text.strip().endswith((".mlir", ".mlirbc", ".txt")):
        hint = f"pathlib.Path({text.strip()!r}), if this is the name of a file"
    line, column = (int(match[2]), int(match[3])) if match else (0, 0)
    return ParseError(message + _excerpt(text, match, file), file=file, line=line, column=column, hint=hint)


def _is_well_formed(message: str, text: str, parse: Callable[[str], object]) -> bool:
    """Whether the message is about what a text says, not about how it is written."""
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
    """The line at fault with a mark below the column."""
    lines = text.splitlines()
    if match is None or match[1] not in ("-", file) or not 1 <= int(match[2]) <= len(lines):
        return ""
    line, column = lines[int(match[2]) - 1], int(match[3])
    start = max(0, column - 80)
    shown = line[start : start + 110]
    return f"\n    {shown}\n    {' ' * (column - 1 - start)}^"


def _copy(module: ir.Module) -> ir.Module:
    """The module in this thread's context: it may come from another one, and is not ours to change."""
    copy: ir.Module = copy_of(module, here=True)
    return copy
