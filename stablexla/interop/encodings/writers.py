"""Writers of a module in each form that can be read."""

from __future__ import annotations

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.encodings import reader
from stablexla.interop.encodings.formats import Format, to_bytecode
from stablexla.interop.encodings.reader_process import Kind
from stablexla.interop.encodings.versions import serialise
from stablexla.interop.hlo.text import keep_negative_zeros
from stablexla.targets.pipeline.printing import Form

FORMS = (Format.TEXT, Format.BYTECODE, Format.ARTIFACT, Format.HLO_TEXT, Format.HLO_PROTO)
"""The forms that can be written."""


def write(
    module: ir.Module,
    form: Format,
    *,
    target: str = "current",
    bytecode_version: int | None = None,
    allow_other_dialects: bool = False,
    text: Form = Form(),  # noqa: B008  (a frozen value)
) -> bytes:
    """Write a module in one of `FORMS`.

    Args:
        module: the module to write; it stays unchanged.
        form: how.
        target: of an artifact, the oldest StableHLO that shall read it; as `versions.resolve` takes it.
        bytecode_version: of bytecode, the version of the encoding.
        allow_other_dialects: in an artifact, let operations pass that no version of StableHLO promises to read.
        text: of text, how it is printed; where constants are left out, it does not parse.

    Raises:
        UnsupportedError: the form cannot hold the program.

    >>> module = sx.load("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    >>> write(module, Format.ARTIFACT, target="1.0.0")[:20]
    b'ML\\xefR\\rStableHLO_v1.0.'
    """
    if form is Format.TEXT:
        return text.text(module).encode()
    if form is Format.BYTECODE:
        return to_bytecode(module, bytecode_version)
    if form is Format.ARTIFACT:
        return serialise(module, target, allow_other_dialects=allow_other_dialects)
    if form is Format.HLO_TEXT:
        return keep_negative_zeros(_write_hlo(module, "to-text", form).decode()).encode()
    if form is Format.HLO_PROTO:
        return _write_hlo(module, "to-hlo", form)
    raise UnsupportedError(f"a {form.described} cannot be written", hint=", ".join(f.value for f in FORMS))


def _write_hlo(module: ir.Module, kind: Kind, form: Format) -> bytes:
    """Write by XLA's converter, in a process of its own: a module that is no HLO ends it."""
    try:
        return reader.read_in_child(kind, to_bytecode(module), "the program")
    except reader.Refused as refused:
        said = next((m for m in refused.messages if m), "no HLO")
        raise UnsupportedError(f"the program cannot be {form.described}: {said}") from None
