"""PTX: what may be handed to LLVM for it, and its text in a module."""

from __future__ import annotations

from collections import Counter

import mlir.ir as ir

from stablexla.dialects.errors import CompileError
from stablexla.lowering.operations import walk
from stablexla.targets.passes import module_pass


@module_pass("stablexla-check-nvvm", "refuses what LLVM has no instructions for, at which it would end the process")
def check_nvvm(module: ir.Module) -> None:
    """Raises CompileError where something is left in a GPU module that has no translation."""
    left: Counter[str] = Counter()
    for view in module.body.operations:
        if view.operation.name == "gpu.module":
            for op in walk(view.operation):
                if not op.name.startswith(("llvm.", "nvvm.", "gpu.module")):
                    left[op.name] += 1
    if left:
        raise CompileError("left over: " + ", ".join(f"{name} ({count}x)" for name, count in left.items()))


def ptx_of(module: ir.Module) -> str:
    """The PTX in a module.

    Raises:
        CompileError: there is none.
    """
    for view in module.body.operations:
        if view.operation.name == "gpu.binary":
            for attribute in ir.ArrayAttr(view.operation.attributes["objects"]):
                return _text_of(str(attribute))
    raise CompileError("the pipeline left no PTX")


def _text_of(attribute: str) -> str:
    """The text in quotes that MLIR writes for an object."""
    quoted = attribute[attribute.index('assembly = "') + len('assembly = "') : attribute.rindex('"')]
    out, at = bytearray(), 0
    raw = quoted.encode()
    while at < len(raw):
        if raw[at : at + 1] == b"\\" and raw[at + 1 : at + 2] in (b"\\", b'"'):
            out += raw[at + 1 : at + 2]
            at += 2
        elif raw[at : at + 1] == b"\\":
            out.append(int(raw[at + 1 : at + 3], 16))
            at += 3
        else:
            out += raw[at : at + 1]
            at += 1
    return out.decode().rstrip("\0")
