"""The input of `stablexla-opt`: the MLIR that a file is for, its stage, and its parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.contexts import diagnostics, stablehlo_context, upstream_context
from stablexla.dialects.errors import ParseError, VerificationError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.interop.encodings import reader
from stablexla.interop.encodings.bytecode import MalformedError, read_bytecode
from stablexla.interop.encodings.formats import Format, recognise, refuse_saved
from stablexla.interop.loading import load_bytes, parse_file, parse_text
from stablexla.targets.pipeline.driver import side_after
from stablexla.targets.pipeline.dump import Header
from stablexla.targets.pipeline.messages import messages_of
from stablexla.targets.pipeline.passes import Side
from stablexla.targets.pipeline.pipelines import Pipeline

_HLO = re.compile(r"\b(stablehlo|chlo|vhlo|sdy)\.|#stablehlo|mhlo\.")
_UPSTREAM = re.compile(r"^\s*(?:%\S+ = )?\"?(?!func|return|module|builtin)[a-z]\w*\.\w", flags=re.MULTILINE)
_OF_STABLEHLO = {"stablehlo", "chlo", "vhlo", "sdy", "mhlo"}
_OF_BOTH = {"builtin", "func"}


@dataclass(frozen=True)
class Part:
    """One module of the input.

    Attributes:
        data: the bytes of the part.
        file: its name in errors.
        whole: whether it is all of a file on disk.
    """

    data: bytes
    file: str
    whole: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it is MLIR text."""
        return recognise(self.data) is Format.TEXT

    @property
    def text(self) -> str:
        """The text; "" of anything else.

        Raises:
            ParseError: it is none.
        """
        if not self.is_text:
            return ""
        try:
            refuse_saved(self.data, self.file)
            return self.data.decode().removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise ParseError("neither MLIR text nor MLIR bytecode", file=self.file) from None

    @property
    def header(self) -> Header | None:
        """The line in which the tool itself has noted a stage."""
        return Header.read(self.text.lstrip("\n"))

    def side(self, start: str, target: Pipeline) -> Side:
        """The MLIR that it is for: by its stage when that is known, else by its operations."""
        if start != "source":
            return side_after(target, start)
        if not self.is_text:
            dialects = self._dialects() if recognise(self.data) is Format.BYTECODE else set()
            return "upstream" if dialects - _OF_BOTH and not dialects & _OF_STABLEHLO else "stablehlo"
        text = self.text
        return "upstream" if not _HLO.search(text) and _UPSTREAM.search(text) else "stablehlo"

    def read(self, side: Side) -> Any:
        """Return the verified module, in this thread's context of that side.

        Raises:
            ParseError: it is no module.
            VerificationError: it is one that breaks a rule.
        """
        if not self.is_text:
            return load_bytes(self.data, self.file) if side == "stablehlo" else self._upstream_bytecode()
        if self.whole:
            return parse_file(Path(self.file), self.text, side=side)
        return parse_text(self.text, self.file, side=side)

    def read_plainly(self, side: Side) -> Any:
        """Like `read`, for listeners to diagnostics: each is emitted once, about the file `-`.

        Raises:
            ParseError: it is no module.
        """
        if not self.is_text:
            return self.read(side)
        kind: Any = hlo_ir if side == "stablehlo" else ir
        context = stablehlo_context() if side == "stablehlo" else upstream_context()
        with diagnostics(context) as seen:
            try:
                return kind.Module.parse(self.text, context)
            except kind.MLIRError as error:
                raise ParseError("; ".join(messages_of(error, seen)), file=self.file) from None

    def _dialects(self) -> set[str]:
        """Return the dialects of the operations in bytecode.

        Raises:
            ParseError: it is damaged.
        """
        try:
            return {name.dialect for name in read_bytecode(self.data).operation_names}
        except MalformedError as error:
            raise ParseError(f"damaged bytecode, or none: {error}", file=self.file) from None

    def _upstream_bytecode(self) -> Any:
        try:
            return ir.Module.parse(reader.read_in_child("upstream", self.data, self.file), upstream_context())
        except reader.Refused as refused:
            raise VerificationError(f"{self.file}: {refused.messages[0].removeprefix('error: ')}") from None


def split_input(data: bytes, separator: str) -> list[bytes]:
    """The parts between lines that are separators, each with as many empty lines before it as keep its line numbers
    right.

    >>> split_input(b"a\\n// -----\\nb\\n", "// -----")
    [b'a\\n', b'\\n\\nb\\n']
    """
    parts, start, mark = [], 0, separator.strip().encode()
    lines = data.splitlines(keepends=True)
    for at, line in enumerate([*lines, mark]):
        if line.strip() == mark:
            parts.append(b"\n" * start + b"".join(lines[start:at]))
            start = at + 1
    return parts
