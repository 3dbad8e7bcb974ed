"""How long StableHLO's interpreter takes for an operation, estimated before it is asked."""

from __future__ import annotations

from math import log2, prod
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from stablexla.inspection.program import CONTROL, ProgramOperation

SECONDS = 2e-6
"""Of the interpreter for a scalar operation: 1.2 us in element-wise operations, 2 in products, 4 in reductions."""
TRIPS = 100
"""Of a loop, whose number is not known."""
COMPOSED = 30
"""Scalar operations of a function that is written out, for an element."""


def scalar_operations(unit: ProgramOperation) -> int:
    """Estimate the scalar operations of an operation with its regions."""
    return _of(unit.op)


def _of(op: Any) -> int:
    name = op.name.rsplit(".", 1)[-1]
    if op.name in CONTROL:
        return _inside(op) * (TRIPS if name == "while" else 1)
    results = sum(_elements(r) for r in op.results)
    operands = sum(_elements(v) for v in op.operands)
    if name == "dot_general":
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        return results * prod(int(op.operands[0].type.shape[d]) for d in numbers.lhs_contracting_dimensions)
    if name == "dot":
        return results * int(op.operands[0].type.shape[-1])
    if name == "convolution":
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        kernel = op.operands[1].type.shape
        return results * prod(map(int, kernel)) // max(int(kernel[numbers.kernel_output_feature_dimension]), 1)
    if name in ("reduce_window", "select_and_scatter") and "window_dimensions" in op.attributes:
        return max(results, operands) * prod(int(n) for n in op.attributes["window_dimensions"])
    if name == "sort":
        return int(operands * 4 * log2(max(operands, 2)))
    if name == "fft":
        return int(results * 8 * log2(max(results, 2)))
    if name in ("cholesky", "triangular_solve"):
        return results * max(map(int, op.operands[0].type.shape), default=1)
    if name in ("composite", "custom_call", "rng_bit_generator") or op.name.startswith("chlo."):
        return (results + operands) * COMPOSED
    return max(results, operands) * (2 if len(op.regions) else 1)


def _inside(op: Any) -> int:
    return sum(_of(each.operation) for region in op.regions for block in region.blocks for each in block.operations)


def _elements(value: Any) -> int:
    shape = getattr(value.type, "shape", ())
    return prod(shape)
