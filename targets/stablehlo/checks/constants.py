"""Operations by which a NaN or an infinity of the program's text enters its computation: those with such an operand.

`select(is_valid, x, NaN)` makes no NaN from operands that are none, and is how functions say that they have no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.constants import read_constant, splat_value
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.value_checks import NAN
from stablexla.targets.stablehlo.checks.operations import (
    Checked,
    maker_of,
    numbers_of,
    operations_with_paths,
    terminator,
)

_KEEP = frozenset(
    f"stablehlo.{name}"
    for name in ("broadcast_in_dim", "reshape", "transpose", "convert", "negate", "slice", "reverse")
)
_QUEUES = ("stablehlo.infeed", "stablehlo.recv")


def from_constants(function: Any, kind: str) -> list[Checked]:
    """Return the operations, in program order, by which a constant NaN, or infinity, may reach a result of a function.

    They are numbered from 1; a NaN in a result is enough to show one. There are none in a program that reads queues,
    which may hold anything.
    """
    block = function.regions[0].blocks[0]
    every = list(operations_with_paths(block))
    if any(op.name in _QUEUES for op, _ in every):
        return []
    returned = {maker_of(value) for value in terminator(block).operands}
    found: list[Checked] = []
    for op, path in every:
        if numbers_of(op.results) and _takes_constant(op, kind, is_returned=op in returned):
            found.append(Checked(len(found) + 1, op, (kind,), path, is_alone=True))
    return found


def _takes_constant(op: Any, kind: str, *, is_returned: bool) -> bool:
    if constant_behind(op.results[0], kind) is not None:
        return is_returned
    return any(constant_behind(value, kind) is not None for value in op.operands)


def constant_behind(value: Any, kind: str) -> Any:
    """Return the constant with a NaN, or an infinity, whose elements a value has; None if it has none of one."""
    maker = maker_of(value)
    while maker is not None and maker.name in _KEEP:
        maker = maker_of(maker.operands[0])
    if maker is None or maker.name != "stablehlo.constant" or not numbers_of(maker.results):
        return None
    numbers = _numbers(maker)
    return maker if (np.isnan(numbers) if kind == NAN else np.isinf(numbers)).any() else None


def _numbers(op: Any) -> Any:
    """Return a constant's numbers, of one number that alone, in a type of numpy's own."""
    type_ = ir.RankedTensorType(op.results[0].type)
    element, shape = BY_MLIR[str(type_.element_type)], tuple(type_.shape)
    one = splat_value(op, element)
    found = read_constant(op, element, shape) if one is None else np.asarray(one)
    found = found.reshape(-1)[:1] if found.size and not any(found.strides) else found
    return found if element.is_complex or found.dtype.isbuiltin == 1 else found.astype(np.float64)


def reached(function: Any, operations: Sequence[Checked]) -> list[int]:
    """Return which results of a function depend on one of the operations."""
    waiting = [each.op for each in operations]
    touched = set(waiting)
    for op in waiting:
        values = [*op.results, *(a for region in op.regions for block in region.blocks for a in block.arguments)]
        following = {use.owner.operation for value in values for use in value.uses} | {op.parent.operation}
        new = [each for each in following - touched if each != function]
        touched.update(new)
        waiting += new
    return [
        i for i, value in enumerate(terminator(function.regions[0].blocks[0]).operands) if maker_of(value) in touched
    ]
