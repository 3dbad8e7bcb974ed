"""Calls of the native runtime that passes add to code on buffers, and the numbers by which it says where they stand.

A call's number is its argument; `take_places` of `targets/llvm/check_stops.py` makes the text of an error from it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

PLACE = "stablexla.place"
"""Attribute of such a call: its number."""
SAYS = "stablexla.says"
"""Attribute: what an error says of it, where that is not the kernel of that number."""
RUN_CALLS = "stablexla_run_calls"
"""The runtime function that carries out a list of calls, see `targets/llvm/call_list.py`."""
PLACES = "stablexla.places"
"""Attribute of its calls: the kernels of those in the list, each with the location of its last call."""
GUARD = "stablexla_guard_"
"""Prefix of the runtime functions of runs under guard."""


def number_of(text: str) -> int:
    """Return a number for a kernel or an array, far above those of loops in all likelihood."""
    return zlib.crc32(text.encode())


def call_runtime(name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type] = ()) -> ir.Operation:
    """Emit a call of a function that is declared in LLVM's dialect."""
    attributes = {
        "callee": ir.FlatSymbolRefAttr.get(name),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
    }
    return ir.Operation.create("llvm.call", results=list(results), operands=list(operands), attributes=attributes)


def call_at_place(name: str, number: int, operands: Sequence[ir.Value] = (), says: str = "") -> None:
    """Emit a call with a number behind its other operands, at a place that errors may name."""
    i64 = ir.IntegerType.get_signless(64)
    call = call_runtime(name, [*operands, arith.constant(i64, number)])
    call.attributes[PLACE] = ir.IntegerAttr.get(i64, number)  # also keeps blocks from being merged
    if says:
        call.attributes[SAYS] = ir.StringAttr.get(says)
