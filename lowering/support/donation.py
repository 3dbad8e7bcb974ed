"""Donation: marks of donated parameters of main, by JAX or XLA, carried from StableHLO to the tensor level."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.lowering.support.operations import terminator_of
from stablexla.lowering.support.types import is_token

ALIASING, DONOR = "tf.aliasing_output", "jax.buffer_donor"
DONATED = "stablexla.donated"
"""Attribute of a donated parameter: the number of the result that may alias it, -1 for any."""


def note_donations(source: Any, main: ir.Operation) -> None:
    """Copy the donations of the StableHLO function's parameters to main's; tokens are no parameters here."""
    if "arg_attrs" not in source.attributes:
        return
    block = source.regions[0].blocks[0]
    results = terminator_of(block).operands
    arrays = [number for number, value in enumerate(results) if not is_token(value.type)]
    rows = []
    for argument, given in zip(block.arguments, hlo_ir.ArrayAttr(source.attributes["arg_attrs"]), strict=True):
        if not is_token(argument.type):
            wanted = _wanted({named.name: named.attr for named in hlo_ir.DictAttr(given)}, arrays)
            rows.append({} if wanted is None else {DONATED: wanted})
    if any(rows):
        i64 = ir.IntegerType.get_signless(64)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({name: ir.IntegerAttr.get(i64, number) for name, number in row.items()}) for row in rows]
        )


def _wanted(given: dict[str, Any], arrays: list[int]) -> int | None:
    """Return the result that may alias the parameter; None if the parameter is not donated."""
    if ALIASING in given:
        number = int(hlo_ir.IntegerAttr(given[ALIASING]).value)
        return arrays.index(number) if number in arrays else -1
    if DONOR in given and hlo_ir.BoolAttr(given[DONOR]).value:
        return -1
    return None
