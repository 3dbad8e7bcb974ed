"""Kernels that run outside of generated code: a C function, or a function of the host.

Their bodies on tensors state only the types; the configuration holds all that a target must know.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.lowering.support.context import LoweringContext, place_of
from stablexla.lowering.support.kernels import KIND, kernel
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.types import TensorType, storage_type, tensor_storage

HOST = "host"
"""The kind of these kernels."""


def host_call(
    ctx: LoweringContext,
    what: str,
    operands: Sequence[ir.Value],
    operand_types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    *,
    effect: bool,
    **config: object,
) -> list[ir.Value]:
    """Emit a kernel that calls a C function or a handler of the host with these operands.

    Args:
        what: "c" for a C function, else which of the host's handlers.
        operands: arrays or scalars, no tokens.
        effect: it must run, and in order with others like it.
        config: further plain values for the target.

    Raises:
        UnsupportedError: inside of another operation's computation, where there are single elements only.
    """
    if not in_main():
        raise ctx.unsupported(f"{ctx.op_name} inside the computation of another operation has no lowering")
    arrays = [as_array(v, t) for v, t in zip(operands, operand_types, strict=True)]
    attributes = {
        "call": what,
        "inputs": [str(t) for t in operand_types],
        "outputs": [str(t) for t in result_types],
        "place": place_of(ctx.op.location),
        **config,
    }

    def body(*_: ir.Value) -> list[ir.Value]:
        return [unknown(t) for t in result_types]

    return kernel(ctx, HOST, arrays, body, attributes=attributes, result_types=result_types, effect=effect)


def in_main() -> bool:
    """Whether the insertion point is in main, at most inside control flow: only there can the host be called."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != "func.func":
        if op.name.startswith("linalg."):
            return False
        op = op.parent.operation
    return KIND not in op.attributes


def as_array(value: ir.Value, type_: TensorType) -> ir.Value:
    """Return an operand in storage form, as it lies in memory."""
    if type_.rank:
        return value
    return tensor.from_elements(tensor_storage(type_), [to_storage(value, type_.element)])


def unknown(type_: TensorType) -> ir.Value:
    """Return a placeholder result for an operation that is computed elsewhere."""
    made = tensor.empty(type_.shape, storage_type(type_.element))
    return made if type_.rank else from_storage(tensor.extract(made, []), type_.element)
