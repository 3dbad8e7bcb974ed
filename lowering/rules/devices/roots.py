"""Roots of collectives: the member of each group that broadcasts its array, or alone keeps the reduced one.

A root is a position in a group: 0, or an element of the last operand of an operation with `has_dynamic_root`. Masked
arrays go through `all_reduce`, so that every transport has these operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import mlir.ir as ir
import numpy as np
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.device_groups import Grid, Groups
from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.rules.conversion import bits_of_value, value_of_bits
from stablexla.lowering.rules.devices.devices import Layout, device_kernel, together
from stablexla.lowering.rules.shape import as_index, constant_array
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import elementwise
from stablexla.lowering.support.storage import constant

ROOTED = "has_dynamic_root"
ZEROS = "stablexla.zeros"
"""Attribute of an operation on formerly quantized arrays: their zero points."""
_PRED, _NUMBER = TensorType(BY_NAME["pred"], ()), TensorType(BY_NAME["s32"], ())


def split_roots(ctx: LoweringContext, operands: Sequence[ir.Value]) -> tuple[Sequence[ir.Value], ir.Value | None]:
    """Split a collective's operands into arrays and their dynamic roots, None without them."""
    return (operands[:-1], operands[-1]) if ROOTED in ctx.attributes else (operands, None)


def from_roots(
    ctx: LoweringContext, arrays: Sequence[ir.Value], types: Sequence[TensorType], groups: Groups, roots: ir.Value
) -> list[ir.Value]:
    """Broadcast the arrays of each group's root: an all-reduce with `or` of the bits, others contribute zeros."""
    made = []
    for x, type_, is_root in zip(arrays, types, _is_root(ctx, groups, roots, len(arrays)), strict=True):
        given = _kept_where(is_root, x, type_)
        layout, joined = Layout.of(type_.shape, type_, type_), partial(_either, type_.element)
        every = complete(groups, ctx.grid)
        made += together(ctx, "all_reduce", [given], [type_], [type_], [layout], groups=every, fold=joined)
    return made


def kept_on_roots(
    ctx: LoweringContext,
    arrays: Sequence[ir.Value],
    types: Sequence[TensorType],
    groups: Groups,
    roots: ir.Value | None,
) -> list[ir.Value]:
    """Mask the arrays: kept on each group's root, zeros on all other devices."""
    found = _is_root(ctx, groups, roots, len(arrays))
    zeros = list(ctx.attributes[ZEROS]) if ZEROS in ctx.attributes else [0] * len(arrays)
    return [_kept_where(is_root, x, t, z) for x, t, is_root, z in zip(arrays, types, found, zeros, strict=True)]


def complete(groups: Groups, grid: Grid) -> Groups:
    """Return the groups, and a group of one for each device that is in none of them."""
    named = {device for group in groups for device in group}
    return (*groups, *((device,) for device in range(grid.size) if device not in named))


def _is_root(ctx: LoweringContext, groups: Groups, roots: ir.Value | None, count: int) -> list[ir.Value]:
    """Emit, for each array, whether the device is its root."""
    positions = np.full(ctx.grid.size, -1, np.int32)
    for group in groups:
        positions[list(group)] = range(len(group))
    table = constant_array(positions, TensorType(_NUMBER.element, positions.shape))
    index = as_index(device_kernel(ctx, "replica_id", 1, _NUMBER), _NUMBER.element)
    position = tensor.extract(table, [index])
    wanted = [constant(position.type, 0)] * count
    if roots is not None:
        wanted = [tensor.extract(roots, [arith.constant(ir.IndexType.get(), i)]) for i in range(count)]
    return [arith.cmpi(arith.CmpIPredicate.eq, position, root) for root in wanted]


def _kept_where(holds: ir.Value, x: ir.Value, type_: TensorType, zero: int = 0) -> ir.Value:
    """Select an array, or, where the predicate is false, elements with the bit pattern of `zero`."""

    def kept(truth: ir.Value, value: ir.Value) -> ir.Value:
        bits = ir.IntegerType.get_signless(type_.element.bits)
        return arith.select(truth, value, value_of_bits(constant(bits, zero), type_.element))

    (made,) = elementwise([holds, x], [_PRED, type_], [type_], kept)
    return made


def _either(element: ElementType, x: ir.Value, y: ir.Value) -> ir.Value:
    """Return the bitwise or of two elements, of which one is zeros."""
    return value_of_bits(arith.ori(bits_of_value(x, element), bits_of_value(y, element)), element)
