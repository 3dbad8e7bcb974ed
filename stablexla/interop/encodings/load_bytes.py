"""Programs as bytes: bytecode, portable artifacts, HLO and files of `jax.export`.

Unless the bytes are trusted, MLIR's reader of bytecode, and XLA's of HLO, runs in a process of its own (`reader.py`).
"""

from __future__ import annotations

import re

import jaxlib.mlir.ir as ir

from stablexla.dialects.contexts import diagnostics, stablehlo_context
from stablexla.dialects.errors import ParseError, StablexlaError, UnsupportedError, VerificationError
from stablexla.interop.encodings import protobuf, reader
from stablexla.interop.encodings.bytecode import Bytecode, MalformedError, read_bytecode, read_header
from stablexla.interop.encodings.exported import find_exported
from stablexla.interop.encodings.formats import Format
from stablexla.interop.encodings.reader_process import NO_STABLEHLO, Kind
from stablexla.interop.encodings.version_errors import check_header, check_operations, is_newer, of_another_version
from stablexla.interop.hlo import text as hlo_text
from stablexla.interop.hlo.proto import prepare
from stablexla.interop.resources import inline_resources
from stablexla.interop.text import excerpt
from stablexla.targets.pipeline.messages import messages_of

_HLO_PLACE = re.compile(r"was parsing (\d+):(\d+): error: (?:Syntax error:\n)?(.*)")
_SEVERAL = "Expected eof after parsing single instruction"
_ABOUT_AN_OPERATION = re.compile(r"'[\w.]+' op ")
_PLACE_IN_BYTES = re.compile(r'^"[^"\n]*":0:0: ')
_HLO_STATUS = re.compile(r"[A-Z_]+: ")


def load_encoded(data: bytes, form: Format, file: str, *, trusted: bool = False) -> ir.Module:
    """Return the verified module in some bytes, in this thread's context.

    Args:
        data: the bytes.
        form: their form.
        file: their name in errors.
        trusted: read them in this process.

    Raises:
        ParseError: they hold no module, or are damaged.
        UnsupportedError: they are of a version that this build does not read.
    """
    if form is Format.EXPORTED:
        found = find_exported(data)
        if found is None:
            raise ParseError("a damaged jax.export file", file=file)
        return _load_bytecode(found.artifact, file, trusted)
    if form in (Format.HLO_PROTO, Format.HLO_TEXT):
        return _load_hlo(data, form, file, trusted)
    return _load_bytecode(data, file, trusted)


def _load_bytecode(data: bytes, file: str, trusted: bool) -> ir.Module:
    if not trusted:
        reader.start()
    try:
        check_header(*read_header(data), file)
        found = read_bytecode(data)
    except MalformedError as error:
        raise ParseError(f"damaged bytecode, or none: {error}", file=file) from None
    check_operations(found, file)
    kind = _kind(found)
    try:
        module = _read(kind, data, file, trusted)
        return inline_resources(module, file) if found.has_resources else module
    except reader.Refused as refused:
        raise _bytecode_refused(refused, found, file) from None


def _kind(found: Bytecode) -> Kind:
    dialects = {name.dialect for name in found.operation_names}
    return "mhlo" if "mhlo" in dialects else "artifact" if "vhlo" in dialects else "bytecode"


def _read(kind: Kind, data: bytes, file: str, trusted: bool) -> ir.Module:
    """Return the module, read here, or read by another process and written anew.

    Raises:
        Refused: there is none.
    """
    if trusted:
        made = reader.read_here(kind, data)
        assert isinstance(made, ir.Module)
        return _named(made, file)
    written = reader.read_in_child(kind, data, file)
    context = stablehlo_context()
    with diagnostics(context) as seen:
        try:
            return _named(ir.Module.parse(written, context), file)
        except ir.MLIRError as error:  # MLIR reads what it wrote; so this is a fault of MLIR's
            raise ParseError(messages_of(error, seen)[0], file=file) from None


def _named(module: ir.Module, file: str) -> ir.Module:
    """Return the module if its functions have names that are text: damaged ones may not."""
    try:
        for op in module.body.operations:
            _ = op.operation.name, op.attributes["sym_name"].value if "sym_name" in op.attributes else ""
    except (UnicodeDecodeError, RuntimeError):
        raise ParseError("damaged bytecode: a name that is no text", file=file) from None
    return module


def _bytecode_refused(refused: reader.Refused, found: Bytecode, file: str) -> StablexlaError:
    said = _first(refused.messages)
    if said.startswith(NO_STABLEHLO):
        return _no_stablehlo(said, file)
    if is_newer(found.producer):
        return of_another_version(found, file, said=said)
    if _ABOUT_AN_OPERATION.match(said):
        return VerificationError(f"{file}: {said}")
    return ParseError(said, file=file)


def _first(messages: tuple[str, ...]) -> str:
    """Return the first diagnostic, without severity and without a place in no file."""
    return _PLACE_IN_BYTES.sub("", messages[0] if messages else "no module").removeprefix("error: ")


def _no_stablehlo(said: str, file: str) -> UnsupportedError:
    hint = 'the program from before XLA\'s optimisations, such as jax.jit(f).lower(...).as_text("hlo")'
    return UnsupportedError(f"{file}: {said}", hint=hint)


def load_mhlo(text: str, file: str, *, trusted: bool = False) -> ir.Module:
    """Return the module of a text with operations of MHLO, rewritten as StableHLO.

    Raises:
        ParseError: it is none.
        UnsupportedError: an operation of MHLO that is none of StableHLO.
    """
    try:
        return _read("mhlo", text.encode(), file, trusted)
    except reader.Refused as refused:
        said = _first(refused.messages)
        raise _no_stablehlo(said, file) if said.startswith(NO_STABLEHLO) else ParseError(said, file=file) from None


def _load_hlo(data: bytes, form: Format, file: str, trusted: bool) -> ir.Module:
    given: dict[str, int] = {}
    try:
        if form is Format.HLO_TEXT:
            text = data.decode()
            hlo_text.check_constants(text, file)
            given = hlo_text.header_counts(text)
            text = hlo_text.with_header(hlo_text.keep_negative_zeros(hlo_text.replace_old_opcodes(text)))
            data = _hlo_proto(text.encode(), file, trusted)
        proto, devices = prepare(protobuf.find_hlo_module(data) or data)
        module = _read("hlo", proto, file, trusted)
    except reader.Refused as refused:
        raise _hlo_refused(_first(refused.messages), data, form, file) from None
    except ValueError as error:
        raise ParseError(f"{form.described} that is none: {error}", file=file) from None
    counts = devices.counts(given.get("replica"), given.get("partition"))
    for name, count in zip(("replicas", "partitions"), counts, strict=True):
        if count is not None:
            i32 = ir.IntegerType.get_signless(32, module.context)
            module.operation.attributes[f"mhlo.num_{name}"] = ir.IntegerAttr.get(i32, count)
    return module


def _hlo_proto(text: bytes, file: str, trusted: bool) -> bytes:
    made = reader.read_here("hlotext", text) if trusted else reader.read_in_child("hlotext", text, file)
    assert isinstance(made, bytes)
    return made


def _hlo_refused(said: str, data: bytes, form: Format, file: str) -> StablexlaError:
    if said.startswith(NO_STABLEHLO):
        return _no_stablehlo(said, file)
    if said.startswith("UNIMPLEMENTED"):
        return UnsupportedError(f"{file}: {_HLO_STATUS.sub('', said, count=1)}")
    place = _HLO_PLACE.search(said)
    if form is Format.HLO_TEXT and place is not None:
        text, line, column = data.decode(errors="replace"), int(place[1]), int(place[2])
        column -= (len(hlo_text.with_header(text)) - len(text)) * (line == 1)
        shown = excerpt(text, line, column)
        if place[3].startswith(_SEVERAL):
            said, hint = "one instruction is a program, several are a computation's", "ENTRY main { ... } around them"
            return ParseError(said + shown, file=file, line=line, column=column, hint=hint)
        return ParseError(place[3] + shown, file=file, line=line, column=column)
    return ParseError(f"{form.described} that is none: {_HLO_STATUS.sub('', said, count=1)}", file=file)
