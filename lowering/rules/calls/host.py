"""Kernels that run outside of generated code: a C function, or a function of the host.

Their bodies on tensors state only the types; the configuration holds all that a target must know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.context import LoweringContext, place_of
from stablexla.lowering.support.kernels import KIND, as_array, kernel
from stablexla.lowering.support.storage import entered
from stablexla.lowering.support.types import TensorType, storage_type

HOST = "host"
"""The kind of these kernels."""


@dataclass(frozen=True)
class HostUpdate:
    """A result of a C function that lies in the memory of an operand."""

    result: int
    operand: int


@dataclass(frozen=True)
class HostConfig:
    """A call of a C function or of a handler of the host.

    Attributes:
        call: "c" for a C function, else which of the host's handlers.
        inputs, outputs: types of the operands and results.
        place: the user's line, for errors.
        target, version: the name and version under which the function is registered.
        keywords: the call's attributes.
        arguments, result: the tuple trees of operands and results.
        shapes: the layouts' own types of operands and results, for XLA's foreign function interface.
        text: the message of an assertion.
        channel, host: those of a message, and whether it is one to the caller of the program.
    """

    call: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    place: str
    target: str | None = None
    version: int | None = None
    keywords: str | None = None
    arguments: str | None = None
    result: str | None = None
    updates: tuple[HostUpdate, ...] | None = None
    shapes: tuple[tuple[str, ...], ...] | None = None
    text: str | None = None
    channel: int | None = None
    host: bool | None = None


def host_call(
    ctx: LoweringContext,
    what: str,
    operands: Sequence[ir.Value],
    operand_types: Sequence[TensorType],
    result_types: Sequence[TensorType],
    *,
    effect: bool,
    **config: Any,
) -> list[ir.Value]:
    """Emit a kernel that calls a C function or a handler of the host with these operands.

    Args:
        what: "c" for a C function, else which of the host's handlers.
        operands: arrays or scalars, no tokens.
        effect: it must run, and in order with others like it.
        config: further fields of its `HostConfig`.

    Raises:
        UnsupportedError: inside of another operation's computation, where there are single elements only.
    """
    if not in_main():
        raise ctx.unsupported(f"{ctx.op_name} inside the computation of another operation has no lowering")
    arrays = [as_array(v, t) for v, t in zip(operands, operand_types, strict=True)]
    types = (tuple(map(str, operand_types)), tuple(map(str, result_types)))
    call = HostConfig(what, *types, place_of(ctx.op.location), **config)

    def body(*_: ir.Value) -> list[ir.Value]:
        return [unknown(t) for t in result_types]

    return kernel(ctx, HOST, arrays, body, config=call, result_types=result_types, effect=effect)


def in_main() -> bool:
    """Whether the insertion point is in main, at most inside control flow: only there can the host be called."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.name != "func.func":
        if op.name.startswith("linalg."):
            return False
        op = op.parent.operation
    return KIND not in op.attributes


def unknown(type_: TensorType) -> ir.Value:
    """Return a placeholder result for an operation that is computed elsewhere."""
    return entered(tensor.empty(type_.shape, storage_type(type_.element)), type_)
