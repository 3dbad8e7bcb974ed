"""Rewrites of MHLO operations to their CHLO equivalents, or to a few operations of StableHLO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import chlo, stablehlo

from stablexla.dialects.erasing import erase
from stablexla.dialects.mhlo.registry import array, convert, reshape, rewrites


@rewrites("mhlo.all_to_all")
def all_to_all_of_several(op: Any) -> Sequence[Any] | None:
    """Rewrite XLA's AllToAllTuple: the i-th operand goes to the i-th device of a group, as a row of one array."""
    operands = list(op.operands)
    if "split_dimension" in op.attributes:
        return None  # of one array
    shape = list(operands[0].type.shape)
    rows = [reshape(x, [1, *shape]) for x in operands]
    sent = stablehlo.concatenate(rows, 0)
    received = stablehlo.all_to_all(
        [sent], 0, 0, len(rows), op.attributes["replica_groups"], channel_handle=_channel(op)
    )
    steps, whole = [1] * (len(shape) + 1), [*shape]
    pieces = [stablehlo.slice(received, [i, *[0] * len(shape)], [i + 1, *whole], steps) for i in range(len(rows))]
    return [reshape(piece, shape) for piece in pieces]


def _channel(op: Any) -> Any:
    """Return the channel of a collective as StableHLO's attribute."""
    if "channel_handle" not in op.attributes:
        return None
    return ir.Attribute.parse(str(op.attributes["channel_handle"]).replace("#mhlo.", "#stablehlo."))


@rewrites("mhlo.ragged_dot")
def ragged_dot(op: Any) -> Sequence[Any]:
    """Rewrite to CHLO's, which has the same attributes."""
    text = str(op.attributes["ragged_dot_dimension_numbers"])
    names = ("lhs_batching", "rhs_batching", "lhs_contracting", "rhs_contracting", "lhs_ragged", "rhs_group")
    numbers = chlo.RaggedDotDimensionNumbers.get(*(_dimensions(text, name) for name in names))
    precision = ir.Attribute.parse(str(op.attributes["precision_config"]).replace("#mhlo", "#chlo"))
    return [chlo.ragged_dot(op.results[0].type, *op.operands, numbers, precision_config=precision)]


def _dimensions(text: str, name: str) -> list[int]:
    found = re.search(rf"{name}_dimensions = \[([\d, ]*)\]", text)
    return [int(d) for d in found[1].split(",")] if found else []


@rewrites("mhlo.scan")
def scan(op: Any) -> Sequence[Any]:
    """Rewrite to CHLO's, which has the same attributes and region."""
    made = ir.Operation.create(
        "chlo.scan",
        results=[r.type for r in op.results],
        operands=list(op.operands),
        attributes=dict(op.attributes.items()),
        regions=1,
    )
    op.regions[0].blocks[0].append_to(made.regions[0])
    body = made.regions[0].blocks[0]
    terminator = body.operations[len(body.operations) - 1].operation
    with ir.InsertionPoint(terminator):
        stablehlo.return_(list(terminator.operands))
    erase(terminator)
    return list(made.results)


@rewrites("mhlo.exp2")
def exp2(op: Any) -> Sequence[Any]:
    """Rewrite to a power with base 2."""
    (x,) = op.operands
    return [stablehlo.power(_splat(2.0, x.type), x)]


@rewrites("mhlo.log2")
def log2(op: Any) -> Sequence[Any]:
    """Rewrite log2; below f64 it is rounded once, and exact for powers of 2."""
    (x,) = op.operands
    logarithm = stablehlo.log(convert(x, ir.F64Type.get()))
    quotient = stablehlo.divide(logarithm, _splat(float(np.log(2.0)), logarithm.type))
    return [convert(quotient, x.type.element_type)]


@rewrites("mhlo.stochastic_convert")
def stochastic_convert(op: Any) -> Sequence[Any] | None:
    """Expand stochastic rounding to integers, away from zero with the probability of the fraction, as XLA does.

    The fraction in units of the random number's last place is compared with that number. Out-of-range values
    saturate, and NaN becomes 0.
    """
    x, random = op.operands
    result = op.results[0].type
    if not isinstance(result.element_type, ir.IntegerType):
        return None  # XLA gives floats no meaning
    if x.type.element_type.width < 32:
        x = convert(x, ir.F32Type.get())  # which holds the limits of all integers, and is exact
    magnitude = stablehlo.abs(x)
    whole = stablehlo.floor(magnitude)
    scale = _splat(2.0**random.type.element_type.width, x.type)
    fraction = stablehlo.multiply(stablehlo.subtract(magnitude, whole), scale)
    up = _compare(random, convert(fraction, random.type.element_type), "LT")
    integer = convert(whole, result.element_type)
    rounded = stablehlo.select(up, stablehlo.add(integer, _splat(1, result)), integer)
    signed = stablehlo.select(_compare(x, _splat(0.0, x.type), "LT"), stablehlo.negate(rounded), rounded)
    return [_clamped(signed, x, result)]


def _clamped(value: Any, x: Any, type_: Any) -> Any:
    """Saturate the value where x is outside the range of the integer type."""
    for limit, direction in zip(_limits(type_.element_type), ("LE", "GE"), strict=True):
        value = stablehlo.select(_compare(x, _splat(float(limit), x.type), direction), _splat(limit, type_), value)
    return stablehlo.select(_compare(x, x, "EQ"), value, _splat(0, type_))


def _limits(element: Any) -> tuple[int, int]:
    if element.is_unsigned:
        return 0, 2**element.width - 1
    return -(2 ** (element.width - 1)), 2 ** (element.width - 1) - 1


def _compare(a: Any, b: Any, direction: str) -> Any:
    return stablehlo.compare(a, b, stablehlo.ComparisonDirectionAttr.get(direction))


def _splat(value: float, type_: Any) -> Any:
    """Create a splat of that type."""
    return stablehlo.constant(ir.Attribute.parse(f"dense<{value}> : {type_}"))


@rewrites("mhlo.xla.rng_get_and_update_state")
def random_state(op: Any) -> Sequence[Any]:
    """Create an arbitrary state: XLA's expansion of Rng keeps one for all calls of a program, and seeds it itself."""
    type_ = op.results[0].type
    limits = (_splat(value, array([], type_.element_type)) for value in (0, 2**64 - 1))
    extents = stablehlo.constant(ir.DenseElementsAttr.get(np.array(type_.shape, np.int64)))
    return [stablehlo.rng(*limits, extents, stablehlo.RngDistributionAttr.get("UNIFORM"))]
