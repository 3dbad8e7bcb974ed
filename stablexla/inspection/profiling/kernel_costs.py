"""Cost model of a kernel by its function on tensors: bytes read and written, operations on numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import body_of, is_tensor
from stablexla.targets.codegen.sizes import bytes_of
from stablexla.targets.grouping.loops import is_generic, loops_of

_ARITHMETIC = ("arith.", "math.", "complex.")
# These move or choose bits; no flop is counted for them.
_FREE = frozenset(
    [
        "arith.bitcast",
        "arith.cmpf",
        "arith.cmpi",
        "arith.constant",
        "arith.index_cast",
        "arith.select",
        "complex.create",
        "complex.im",
        "complex.re",
    ]
)


@dataclass(frozen=True)
class Cost:
    """The cost of one call of a kernel.

    Attributes:
        read: bytes of the arrays that it takes, each once.
        written: bytes of the arrays that it gives.
        flops: arithmetic operations on floating-point numbers; an elementary function counts as one. None where a loop
            of the kernel has no length that can be read off.
    """

    read: int
    written: int
    flops: int | None


def cost_of(function: Any) -> Cost:
    """Return the cost of a kernel's function on tensors."""
    block = function.regions[0].blocks[0]
    read = sum(bytes_of(a.type) for a in block.arguments if is_tensor(a))
    returned = block.operations[len(block.operations) - 1].operands
    written = sum(bytes_of(v.type) for v in returned if is_tensor(v))
    return Cost(read, written, _flops(block))


def _flops(block: Any) -> int | None:
    total = 0
    for view in block.operations:
        op = view.operation
        if is_generic(op):
            total += prod(loops_of(op).extents) * sum(_is_flop(inner) for inner in body_of(op))
        elif op.name.startswith("scf."):
            return None
        elif _is_flop(op):
            total += 1
    return total


def _is_flop(op: Any) -> bool:
    if not op.name.startswith(_ARITHMETIC) or op.name in _FREE or not len(op.results):
        return False
    return isinstance(op.results[0].type, ir.FloatType | ir.ComplexType)
