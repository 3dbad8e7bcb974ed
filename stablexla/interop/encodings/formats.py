"""The forms of programs as bytes: recognition of each, and writers."""

from __future__ import annotations

import codecs
import re
from enum import Enum
from io import BytesIO
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import ParseError
from stablexla.dialects.held_arrays import with_elements
from stablexla.interop.encodings import bytecode, exported, protobuf
from stablexla.targets.runtime import container
from stablexla.targets.stablehlo.nesting import check_nesting

ARTIFACT = "StableHLO_v"
"""How the producer of a portable artifact begins; StableHLO's version follows."""

# HLO text begins with a header, an entry, a computation, whose parameters may be listed, or is one instruction.
_SPACE, _NAME = r"(?:\s|//[^\n]*\n|/\*.*?\*/)*+", r"%?[\w.-]++"
_SHAPE = r"(?:\(\s*+\)|[(\s]*+[a-z]\w*+\[[\d,\s<=?]*+\])"
_INSTRUCTION = rf"(?:ROOT\s++)?{_NAME}\s*+={_SPACE}{_SHAPE}"
_WITHOUT_NAME = rf"{_SHAPE}(?:[^\n]*[\]}})])?\s++[a-z][a-z\d-]*+\("
_HLO_BEGINNINGS = [
    r"HloModule[\s,]",
    r"ENTRY(?![\w.-])",
    rf"{_NAME}{_SPACE}\{{{_SPACE}{_INSTRUCTION}",
    rf"{_NAME}\s*+\([^\n]*\)\s*->\s*{_SHAPE}",
    _INSTRUCTION,
    _WITHOUT_NAME,
]
_HLO_TEXT = re.compile(f"{_SPACE}(?:{'|'.join(_HLO_BEGINNINGS)})".encode(), re.DOTALL)


class Format(Enum):
    """A form of programs; the value is its name on the command line."""

    TEXT = "text"
    BYTECODE = "bytecode"
    ARTIFACT = "artifact"
    HLO_TEXT = "hlo-text"
    HLO_PROTO = "hlo"
    EXPORTED = "jax-export"

    @property
    def described(self) -> str:
        """Its name in sentences."""
        return _DESCRIBED[self]


_DESCRIBED = {
    Format.TEXT: "MLIR text",
    Format.BYTECODE: "MLIR bytecode",
    Format.ARTIFACT: "StableHLO portable artifact",
    Format.HLO_TEXT: "HLO text",
    Format.HLO_PROTO: "HLO proto",
    Format.EXPORTED: "jax.export file",
}


def recognise(data: bytes) -> Format:
    """Return the form of a program; without the magic of any it is text, and its parser reports what is wrong.

    >>> recognise(b"func.func @main() { return }"), recognise(b"ENTRY e { "), recognise(b"ML\\xefR\\x01MLIR\\0")
    (<Format.TEXT: 'text'>, <Format.HLO_TEXT: 'hlo-text'>, <Format.BYTECODE: 'bytecode'>)
    """
    if data.startswith(bytecode.MAGIC):
        try:
            _, producer = bytecode.read_header(data[:4096])
        except bytecode.MalformedError:
            return Format.BYTECODE
        return Format.ARTIFACT if producer.startswith(ARTIFACT) else Format.BYTECODE
    if _HLO_TEXT.match(data.removeprefix(codecs.BOM_UTF8)[:65536]):
        return Format.HLO_TEXT
    if not looks_like_text(data):
        if exported.is_exported(data):
            return Format.EXPORTED
        if protobuf.find_hlo_module(data) is not None:
            return Format.HLO_PROTO
    return Format.TEXT


def looks_like_text(data: bytes) -> bool:
    """Return whether the first bytes are text: no control characters but tabs and ends of lines."""
    return not any(byte < 32 and byte not in b"\t\n\v\f\r" for byte in data[:512])


def to_bytecode(module: ir.Module | str, version: int | None = None) -> bytes:
    """Return the bytecode of a module, or of the text of one.

    Args:
        module: the module to write.
        version: of the encoding; the newest when not given.

    Raises:
        UnsupportedError: its regions are nested so deep that writing them would end the process.
    """
    if isinstance(module, str):
        from stablexla.interop.loading import parse_text

        module = parse_text(module)
    check_nesting(module)
    operation: Any = with_elements(module).operation
    out = BytesIO()
    if version is None:
        operation.write_bytecode(out)
    else:
        operation.write_bytecode(out, desired_version=version)
    return out.getvalue()


def decode(data: bytes, file: str) -> str:
    """Return the text in some bytes.

    Raises:
        ParseError: they are no UTF-8; the error says where.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ParseError("text in UTF-16; MLIR is written in UTF-8", file=file, hint="iconv -f UTF-16 -t UTF-8")
    refuse_saved(data, file)
    if exported.is_cut(data):
        raise ParseError(f"a file of jax.export that was cut, or is damaged: it ends at byte {len(data)}", file=file)
    if not looks_like_text(data):
        raise ParseError(
            "neither text nor bytes of a form that is known", file=file, hint=", ".join(f.described for f in Format)
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise ParseError(
            f"byte 0x{data[error.start]:02X} is no UTF-8, in which MLIR is written", file=file, line=line, column=column
        ) from None


def refuse_saved(data: bytes, file: str) -> None:
    """Refuse a saved executable where a program is read.

    Raises:
        ParseError: it is one.
    """
    if data.startswith(container.MAGIC):
        raise ParseError(
            "this is a saved executable: machine code, and no program to compile",
            file=file,
            hint="sx.load_executable(path)",
            option="stablexla-run FILE, or stablexla-translate --info FILE",
        )
