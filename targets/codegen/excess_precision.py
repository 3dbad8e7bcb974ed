"""Values that keep the precision they were computed in between the operations of a kernel, where that is allowed.

An operation on bf16 or f16 is computed in f32 and rounded. Where the next one of the kernel takes the result, it would
be widened at once: with `CompileOptions(excess_precision=True)` it is handed on unrounded, and so is a product to a
sum: one instruction computes both. What is stored is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import mlir.ir as ir

from stablexla.lowering.support.kernels import KIND
from stablexla.lowering.support.operations import defining
from stablexla.targets.codegen.emission import Value, vector_of
from stablexla.targets.pipeline.passes import module_pass

MARK = "stablexla.excess_precision"
"""Attribute of such a kernel."""
_allowed: ContextVar[bool] = ContextVar("stablexla_excess_precision", default=False)


@module_pass(
    "stablexla-keep-precision", "lets kernels hand on values unrounded from one of their operations to the next"
)
def keep_precision(module: ir.Module) -> None:
    """Mark all kernels; to be run when they are functions on tensors."""
    with module.context:
        for view in module.body.operations:
            if KIND in view.operation.attributes:
                view.operation.attributes[MARK] = ir.UnitAttr.get()


@contextmanager
def as_marked(function: ir.Operation) -> Iterator[None]:
    """Allow what the mark of a kernel allows while its code is emitted."""
    token = _allowed.set(MARK in function.attributes)
    try:
        yield
    finally:
        _allowed.reset(token)


def is_allowed() -> bool:
    """Whether the kernel that is being emitted may hand on unrounded values."""
    return _allowed.get()


def unrounded(operation: ir.Operation, operands: Sequence[Value], lanes: int) -> Value | None:
    """Return the value that was rounded to what an operation widens again; None where there is none, or it may not."""
    if not is_allowed() or operation.name != "arith.extf":
        return None
    rounding = defining(operands[0].ssa)
    if rounding is None or rounding.name != "arith.truncf":
        return None
    is_half = isinstance(operation.operands[0].type, ir.BF16Type | ir.F16Type)
    before = rounding.operands[0]
    return Value(before) if is_half and before.type == vector_of(lanes, operation.results[0].type) else None


def fused(operation: ir.Operation) -> dict[str, ir.Attribute]:
    """Return the attributes by which LLVM may compute a product and a sum without rounding in between."""
    if not is_allowed() or operation.name not in _FUSED:
        return {}
    return {"fastmath": ir.Attribute.parse("#arith.fastmath<contract>", operation.context)}


_FUSED = frozenset(["arith.addf", "arith.mulf", "arith.subf"])
