"""Random generator states as 32-bit words, as in JAX's keys: pairs, lower word first, form 64-bit numbers."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.hlo import emit
from stablexla.targets.stablehlo.imports.replacements import replaces

_NUMBERS = (2, 3)
"""Sizes of a state in 64-bit numbers; the lowering checks which algorithm takes which."""


@replaces("stablehlo.rng_bit_generator")
def rng_bit_generator(op: Any) -> list[Any] | None:
    """Rewrite the generator to a state of 64-bit numbers, and return the new state as words."""
    (state,) = op.operands
    words = state.type
    if str(words.element_type) != "ui32" or tuple(words.shape) not in [(2 * n,) for n in _NUMBERS]:
        return None
    count = words.shape[0] // 2
    pairs = ir.RankedTensorType.get([count, 2], words.element_type)
    wide = ir.RankedTensorType.get([count], ir.IntegerType.get_unsigned(64))
    joined = emit("stablehlo.bitcast_convert", [emit("stablehlo.reshape", [state], [pairs])], [wide])
    attributes = {"rng_algorithm": op.attributes["rng_algorithm"]}
    types = [wide, op.results[1].type]
    made = ir.Operation.create("stablehlo.rng_bit_generator", results=types, operands=[joined], attributes=attributes)
    after, bits = made.results
    return [emit("stablehlo.reshape", [emit("stablehlo.bitcast_convert", [after], [pairs])], [words]), bits]
