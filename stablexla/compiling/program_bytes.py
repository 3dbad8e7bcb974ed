"""A program in any form as plain values and bytes: for another process, and for cache keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stablexla.interop.loading import Program


def bytes_of(program: Program) -> tuple[dict[str, Any], bytes]:
    """Return the kind of a program with everything besides the bytes, and the bytes; a file's are not read.

    Raises:
        ParseError: it is no program.
    """
    if isinstance(program, str):
        return {"kind": "text"}, program.encode("utf-8", "surrogatepass")
    if isinstance(program, (bytes, bytearray, memoryview)):
        return {"kind": "bytes"}, bytes(program)
    if isinstance(program, Path):
        return {"kind": "path", "path": str(program.absolute())}, b""
    from stablexla.builder.computation import XlaComputation
    from stablexla.interop.encodings.formats import to_bytecode

    if isinstance(program, XlaComputation):
        kind = {
            "kind": "computation",
            "name": program.name,
            "parameter_shapes": list(map(str, program.parameter_shapes)),
            "parameter_names": list(program.parameter_names),
            "result_shape": str(program.result_shape),
        }
        return kind, to_bytecode(program.module)
    import jaxlib.mlir.ir as ir

    from stablexla.interop.loading import load

    return {"kind": "module"}, to_bytecode(program if isinstance(program, ir.Module) else load(program))


def is_in_memory(program: Program) -> bool:
    """Return whether a program is a module, which has locations of its own."""
    if isinstance(program, (str, bytes, bytearray, memoryview, Path)):
        return False
    import jaxlib.mlir.ir as ir

    from stablexla.builder.computation import XlaComputation

    return isinstance(program, (XlaComputation, ir.Module))


def contents_of_file(kind: dict[str, Any]) -> bytes:
    """Return the contents of a program's file; nothing when it cannot be read, which is reported later."""
    path = Path(kind.get("path", ""))
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def mentions(name: str, data: bytes) -> bool:
    """Return whether a program may use a function of that name: its bytes contain the name.

    Bytecode stores an operation's dialect and name separately.

    >>> mentions("chlo.erf", b"chlo\\0erf\\0"), mentions("my.gelu", b"my.tanh")
    (True, False)
    """
    return name.encode() in data or (name.startswith("chlo.") and name.removeprefix("chlo.").encode() in data)
