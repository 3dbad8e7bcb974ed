"""Layouts of the arrays that a program takes and gives, which JAX writes as `mhlo.layout_mode` of `main`.

An array whose layout is not that of rows is, to the program, the array of its memory, transposed at the program's edge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import sdy, stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.custom_calls import LAYOUT
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.op_traits import TRAITS
from stablexla.lowering.support.context import ALIASING, DONOR
from stablexla.lowering.support.operations import defining, main_of, terminator_of
from stablexla.targets.signature.array_sharding import ArraySharding
from stablexla.targets.signature.signature import body_of
from stablexla.targets.stablehlo.meshes import call_target

_MODE = "mhlo.layout_mode"
_SHARDING, _GSPMD = "sdy.sharding", "mhlo.sharding"
_WRITTEN = re.compile(r"\{([\d,]*)(?::E\(\d+\))?\}")  # with the bits of an element, which take a byte here

Order = list[int]
"""Dimensions from major to minor; [] for the order of rows."""


def apply_layouts(module: ir.Module) -> tuple[list[Order], list[Order]]:
    """Have `main` take and give arrays as they are in memory; return the order of each argument and result.

    A result of layout AUTO is in the order in which it is made without a transpose; an argument in that of rows.

    Raises:
        UnsupportedError: a layout with tiles, or with shardings of GSPMD.
    """
    main, block = main_of(module), body_of(module)
    terminator = terminator_of(block)
    taken, given = _rows(main, "arg_attrs", len(block.arguments)), _rows(main, "res_attrs", len(terminator.operands))
    arguments = [_order(row, value, f"argument {i}") for i, (row, value) in enumerate(zip(taken, block.arguments))]
    results = [_order(row, value, f"result {i}") for i, (row, value) in enumerate(zip(given, terminator.operands))]
    if any(arguments) or any(results):
        with module.context, ir.Location.unknown():
            _transpose_arguments(block, arguments)
            _transpose_results(terminator, results)
            types = [value.type for value in block.arguments], [value.type for value in terminator.operands]
            main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
            for rows, orders in ((taken, arguments), (given, results)):
                for row, order in zip(rows, orders, strict=True):
                    _transpose_sharding(row, order)
            _check_aliases(taken, *types)
            for name, rows in (("arg_attrs", taken), ("res_attrs", given)):
                main.attributes[name] = ir.ArrayAttr.get([ir.DictAttr.get(row) for row in rows])
    return arguments, results


def logical(sharding: ArraySharding, order: Order) -> ArraySharding:
    """Return the sharding of an array from that of its memory."""
    if not order:
        return sharding
    back = _inverse(order)
    parts = tuple(tuple(part[d] for d in back) for part in sharding.parts)
    return ArraySharding(tuple(sharding.shape[d] for d in back), parts, sharding.summands)


def minor_to_major(orders: Sequence[Order]) -> list[list[int]]:
    """Return orders as XLA writes them; [] for rows."""
    return [order[::-1] for order in orders]


def _rows(main: Any, name: str, count: int) -> list[dict[str, Any]]:
    rows = main.attributes[name] if name in main.attributes else [{}] * count
    return [{each.name: each.attr for each in row} if row else {} for row in rows]


def _order(row: dict[str, Any], value: Any, what: str) -> Order:
    mode = row[_MODE].value if _MODE in row else "default"
    if mode == "default":
        return []
    if mode == "auto":
        return _natural(value) if isinstance(value, ir.OpResult) else []
    found = _WRITTEN.fullmatch(mode)
    if found is None:
        raise UnsupportedError(f"{what} of the layout {mode}", hint="Layout(major_to_minor), without tiling")
    return _or_rows([int(d) for d in found[1].split(",")[::-1] if d])


def _natural(value: Any) -> Order:
    """Return the order in which a value is made: that of a transpose's operand, or of a layout constraint."""
    while (op := defining(value)) is not None:
        if op.name == "stablehlo.transpose":
            return _or_rows(_inverse(list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))))
        if op.name == "stablehlo.custom_call" and call_target(op) == LAYOUT:
            (order,) = op.attributes["result_layouts"]
            return _or_rows([int(d) for d in ir.DenseIntElementsAttr(order)][::-1])
        traits = TRAITS.get(op.name)
        if op.name != "sdy.sharding_constraint" and (traits is None or not traits.is_elementwise):
            return []
        alike = (each for each in op.operands if each.type.shape == value.type.shape and not _is_filled(each))
        if (value := next(alike, None)) is None:
            return []
    return []


def _is_filled(value: Any) -> bool:
    op = defining(value)
    return op is not None and op.name in ("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.iota")


def _transpose_arguments(block: Any, orders: Sequence[Order]) -> None:
    for argument, order in zip(block.arguments, orders, strict=True):
        if order:
            uses = [(use.owner, use.operand_number) for use in argument.uses]
            argument.set_type(hlo.tensor(argument.type, [argument.type.shape[d] for d in order]))
            with ir.InsertionPoint.at_block_begin(block):
                made = stablehlo.transpose(argument, hlo.i64s(_inverse(order)))
            for owner, number in uses:
                owner.operands[number] = made


def _transpose_results(terminator: Any, orders: Sequence[Order]) -> None:
    with ir.InsertionPoint(terminator):
        for number, order in enumerate(orders):
            if order:
                terminator.operands[number] = stablehlo.transpose(terminator.operands[number], hlo.i64s(order))


def _transpose_sharding(row: dict[str, Any], order: Order) -> None:
    if not order:
        return
    if _GSPMD in row and row[_GSPMD].value != "{replicated}":
        raise UnsupportedError("a layout beside a sharding of GSPMD", hint="jax_use_shardy_partitioner=True")
    if _SHARDING in row:
        old = sdy.TensorShardingAttr(row[_SHARDING])
        dimensions = [old.dimension_shardings[d] for d in order]
        row[_SHARDING] = sdy.TensorShardingAttr.get(
            old.mesh_or_ref, dimensions, list(old.replicated_axes), list(old.unreduced_axes)
        )


def _check_aliases(rows: Sequence[dict[str, Any]], arguments: Sequence[Any], results: Sequence[Any]) -> None:
    """Make a donor of an argument whose memory has another shape than the result's that it is given to."""
    for row, type_ in zip(rows, arguments, strict=True):
        if ALIASING in row and results[int(ir.IntegerAttr(row[ALIASING]).value)] != type_:
            del row[ALIASING]
            row[DONOR] = ir.BoolAttr.get(True)


def _inverse(order: Order) -> Order:
    return sorted(range(len(order)), key=order.__getitem__)


def _or_rows(order: Order) -> Order:
    return [] if order == sorted(order) else order
