"""Operations that LLVM selects instructions for on NVIDIA GPUs: at others instruction selection ends the process.

Found by trying each operation of LLVM's dialect on each type; `tests/targets/gpu/test_errors.py` has those that are
refused.
"""

from __future__ import annotations

import re

import mlir.ir as ir

from stablexla.dialects.symbols import symbol_of

FUNCTIONS = frozenset(
    {
        *(
            "acos",
            "asin",
            "atan",
            "atan2",
            "cos",
            "cosh",
            "exp",
            "exp10",
            "exp2",
            "log",
            "log10",
            "log2",
            "pow",
            "powi",
        ),
        *("sin", "sincos", "sinh", "tan", "tanh"),
    }
)
"""Elementary functions that LLVM has as intrinsics, and GPUs have only approximations of, if anything."""
_CONVERSIONS = frozenset(f"llvm.{name}" for name in ("fptosi", "fptoui", "sitofp", "uitofp"))
_NO_FLOATS = re.compile(r"\b(?:f80|f128|ppc_fp128|x86_amx|f8E\w+|f6E\w+|f4E\w+|tf32)\b")
_WIDE = re.compile(r"\bi(\d+)\b")
_FROM_ELSEWHERE = ("llvm.x86.", "llvm.aarch64.", "llvm.arm.")
MOST_BITS = 64


def selection_name(op: ir.Operation) -> str:
    """Return an operation's name for errors: of the intrinsic that it calls, or the missing function."""
    if op.name == "llvm.call_intrinsic":
        return str(ir.StringAttr(op.attributes["intrin"]).value)
    if op.name == "llvm.call" and "callee" in op.attributes:
        return f"{op.name} @{ir.FlatSymbolRefAttr(op.attributes['callee']).value}"
    return str(op.name)


def is_selectable(op: ir.Operation, texts: dict[ir.Type, str]) -> bool:
    """Return whether an operation in a GPU module has a selection to PTX; `texts` caches the spelling of types."""
    if not op.name.startswith(("llvm.", "nvvm.", "gpu.module")):
        return False
    name = selection_name(op)
    if name.startswith(_FROM_ELSEWHERE) or _function_in(name) in FUNCTIONS:
        return False
    if op.name == "llvm.call" and "callee" in op.attributes:
        return _is_defined(op)
    if op.name in _CONVERSIONS:
        both = f"{_text(op.operands[0].type, texts)} {_text(op.results[0].type, texts)}"
        return not any(int(n) > MOST_BITS for n in _WIDE.findall(both))
    return not any(_NO_FLOATS.search(_text(result.type, texts)) for result in op.results)


def _text(type_: ir.Type, texts: dict[ir.Type, str]) -> str:
    found = texts.get(type_)
    if found is None:
        found = texts[type_] = str(type_)
    return found


def _function_in(name: str) -> str:
    """Return the function's name: `exp` of `llvm.intr.exp` and of `llvm.exp.f32`."""
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["intr"] and len(parts) > 2 else parts[1] if len(parts) > 1 else ""


def _is_defined(call: ir.Operation) -> bool:
    """Return whether the callee is defined in the same module, with a body."""
    callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    place = call
    while place.name != "gpu.module":
        place = place.parent.operation
    for view in place.regions[0].blocks[0].operations:
        op = view.operation
        if op.name == "llvm.func" and symbol_of(op) == callee:
            return len(op.regions[0].blocks) > 0
    return False
