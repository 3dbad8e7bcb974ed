"""Takes a program in any of the forms in which it may come, and gives a verified StableHLO module of this thread.

Files are read here, text by `text.py` and all other forms by `encoded.py`; the compiler uses the module.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import jaxlib.mlir.ir as ir

from stablexla.builder.builder import XlaBuilder
from stablexla.builder.computation import XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.dialects.bracket_depth import without_elements
from stablexla.dialects.errors import ParseError, UnsupportedError
from stablexla.dialects.held_arrays import ELIDED
from stablexla.interop.encodings import bytecode
from stablexla.interop.encodings.formats import Format, decode, recognise
from stablexla.interop.encodings.vhlo import to_stablehlo
from stablexla.interop.entry import with_entry
from stablexla.interop.resources import MARK, inline_resources
from stablexla.interop.structured_control_flow import structure_branches
from stablexla.interop.text import TEXT, parse_file, parse_text
from stablexla.interop.tuples import flatten_tuples
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.stablehlo.inlining import all_operations
from stablexla.targets.stablehlo.nesting import check_nesting

__all__ = ["BYTECODE", "Program", "load", "load_bytes", "parse_file", "parse_text"]

Program: TypeAlias = XlaComputation | str | bytes | Path | ir.Module

BYTECODE = bytecode.MAGIC
_BYTES = "<bytes>"
_OF_A_DIALECT = re.compile("Dialect `mhlo' not found|an unregistered dialect")


def load(program: Program, *, entry: str = "main", trusted: bool = False) -> ir.Module:
    """Return a verified StableHLO module without other owners.

    Args:
        program: an `XlaComputation`; MLIR or HLO text (`str`); MLIR bytecode, a StableHLO portable artifact, an HLO
            proto or a file of `jax.export` (`bytes`); a `pathlib.Path` to any of these, which is recognised by what is
            in it; a module of jaxlib's MLIR, which is copied.
        entry: the function to run, which gets the name `main`.
        trusted: read bytes in this process. Those of unknown origin are read in a process of their own, as damaged
            ones may crash their reader; it starts with the first of them, in about 0.3 s.

    Raises:
        ParseError: it is no module; the error has file, line and column.
        VerificationError: it is one, and breaks a rule of its dialects, or there is no such function.
        UnsupportedError: it is of a version of StableHLO that this build does not read, or has an operation of one.

    >>> module = sx.load("func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    >>> [op.name.value for op in module.body.operations]
    ['main']
    >>> print(sx.load("HloModule halve  ENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }"))
    module @halve ...
    """
    module = _load(program, trusted)
    if ELIDED in module.operation.attributes:
        raise UnsupportedError(
            "the source of a saved program, in which frozen arrays are left out: its kernels have them in another form",
            hint="the program that was frozen",
        )
    return with_entry(module, entry)


def _load(program: Program, trusted: bool) -> ir.Module:
    if isinstance(program, XlaComputation):
        return _copy(program.module)
    if isinstance(program, Path):
        return _load_file(program, trusted)
    if isinstance(program, str):
        return _load_text(program, TEXT, trusted)
    if isinstance(program, (bytes, bytearray, memoryview)):
        return load_bytes(bytes(program), _BYTES, trusted=trusted)
    if isinstance(program, ir.Module):
        return _in_our_form(_copy(program))
    hint = "an XlaComputation, MLIR or HLO text (str), bytecode (bytes), a pathlib.Path, or a jaxlib.mlir.ir.Module"
    if isinstance(program, XlaOp):
        hint = "b.build(op) makes the computation of it"
    elif isinstance(program, XlaBuilder):
        hint = "b.build(root) makes the computation of an op"
    elif type(program).__module__.split(".")[0] == "jax":
        hint = "jit, from_lowered or from_exported of stablexla.interop.jax"
    raise ParseError(f"a {type(program).__name__} is no program", file="<object>", hint=hint)


def _load_file(path: Path, trusted: bool) -> ir.Module:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ParseError(f"cannot be read: {error.strerror}", file=str(path)) from None
    if recognise(data) is not Format.TEXT or data.startswith(codecs.BOM_UTF8) or not data.strip():
        return load_bytes(data, str(path), trusted=trusted)
    text = decode(data, str(path))
    return _parsed(lambda: parse_file(path, text), text, str(path), trusted)


def load_bytes(data: bytes, file: str = _BYTES, *, trusted: bool = False) -> ir.Module:
    """Load the contents of the file of that name, in any form."""
    if not data.removeprefix(codecs.BOM_UTF8).strip():
        raise ParseError("is empty", file=file)
    form = recognise(data)
    if form in (Format.TEXT, Format.HLO_TEXT):
        return _load_text(decode(data, file), file, trusted)
    return _load_encoded(data, form, file, trusted)


def _load_text(text: str, file: str, trusted: bool) -> ir.Module:
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise ParseError("is empty", file=file)
    if recognise(text[:65536].encode(errors="replace")) is Format.HLO_TEXT:
        return _load_encoded(text.encode(errors="replace"), Format.HLO_TEXT, file, trusted)
    return _parsed(lambda: parse_text(text, file), text, file, trusted)


def _parsed(parse: Callable[[], ir.Module], text: str, file: str, trusted: bool) -> ir.Module:
    """Parse a module of a text; VHLO and MHLO become StableHLO."""
    short = without_elements(text)
    try:
        module = parse()
        if "mhlo." not in short or not _holds_mhlo(module):
            module = to_stablehlo(module)
            if MARK in short:
                inline_resources(module, file)
            return _in_our_form(module, short)
    except ParseError as error:
        if "mhlo." not in short or not _OF_A_DIALECT.search(str(error)):
            raise
    from stablexla.interop.encodings.load_bytes import load_mhlo

    return _in_our_form(load_mhlo(text, file, trusted=trusted))


def _load_encoded(data: bytes, form: Format, file: str, trusted: bool) -> ir.Module:
    from stablexla.interop.encodings.load_bytes import load_encoded  # with processes and sockets: 10 ms

    return _in_our_form(load_encoded(data, form, file, trusted=trusted))


def _holds_mhlo(module: ir.Module) -> bool:
    """Return whether there are operations of MHLO, a dialect that is loaded once trusted HLO was read here."""
    if not module.context.is_registered_operation("mhlo.add"):
        return False
    return any(op.name.startswith("mhlo.") for op in all_operations(module.operation))


def _copy(module: ir.Module) -> ir.Module:
    """Copy the module into this thread's context: it may be another's, and is not ours to change."""
    check_nesting(module)
    copy: ir.Module = copy_of(module, here=True)
    return copy


def _in_our_form(module: ir.Module, text: str = "tuple cf.") -> ir.Module:
    """Return the module without tuples as values, and without branches between blocks.

    Args:
        text: what it was parsed from: it is searched in less time than the module.
    """
    module = flatten_tuples(module) if "tuple" in text else module
    return structure_branches(module) if "cf." in text else module
