"""Rewrites of MHLO operations to their CHLO equivalents, or to a few operations of StableHLO."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import chlo, stablehlo

from stablexla.dialects import hlo
from stablexla.dialects.erasing import erase
from stablexla.dialects.mhlo.registry import rewrites


@rewrites("mhlo.all_to_all")
def all_to_all_of_several(op: Any) -> Sequence[Any] | None:
    """Rewrite XLA's AllToAllTuple: the i-th operand goes to the i-th device of a group, as a row of one array."""
    operands = list(op.operands)
    if "split_dimension" in op.attributes:
        return None  # of one array
    shape = list(operands[0].type.shape)
    rows = [hlo.reshape(x, [1, *shape]) for x in operands]
    sent = stablehlo.concatenate(rows, 0)
    received = stablehlo.all_to_all(
        [sent], 0, 0, len(rows), op.attributes["replica_groups"], channel_handle=_channel(op)
    )
    steps, whole = [1] * (len(shape) + 1), [*shape]
    pieces = [stablehlo.slice(received, [i, *[0] * len(shape)], [i + 1, *whole], steps) for i in range(len(rows))]
    return [hlo.reshape(piece, shape) for piece in pieces]


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
    return [stablehlo.power(hlo.constant(x.type, 2.0), x)]


@rewrites("mhlo.log2")
def log2(op: Any) -> Sequence[Any]:
    """Rewrite log2; below f64 it is rounded once, and exact for powers of 2."""
    (x,) = op.operands
    logarithm = stablehlo.log(hlo.convert(x, ir.F64Type.get()))
    quotient = stablehlo.divide(logarithm, hlo.constant(logarithm.type, float(np.log(2.0))))
    return [hlo.convert(quotient, x.type.element_type)]


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
        x = hlo.convert(x, ir.F32Type.get())  # which holds the limits of all integers, and is exact
    magnitude = stablehlo.abs(x)
    whole = stablehlo.floor(magnitude)
    scale = hlo.constant(x.type, 2.0**random.type.element_type.width)
    fraction = stablehlo.multiply(stablehlo.subtract(magnitude, whole), scale)
    up = hlo.compare(random, hlo.convert(fraction, random.type.element_type), "LT", kind=None)
    integer = hlo.convert(whole, result.element_type)
    rounded = hlo.select(up, stablehlo.add(integer, hlo.constant(result, 1)), integer)
    is_negative = hlo.compare(x, hlo.constant(x.type, 0.0), "LT", kind=None)
    signed = hlo.select(is_negative, stablehlo.negate(rounded), rounded)
    return [_clamped(signed, x, result)]


def _clamped(value: Any, x: Any, type_: Any) -> Any:
    """Saturate the value where x is outside the range of the integer type."""
    for limit, direction in zip(_limits(type_.element_type), ("LE", "GE"), strict=True):
        beyond = hlo.compare(x, hlo.constant(x.type, float(limit)), direction, kind=None)
        value = hlo.select(beyond, hlo.constant(type_, limit), value)
    return hlo.select(hlo.compare(x, x, "EQ", kind=None), value, hlo.constant(type_, 0))


def _limits(element: Any) -> tuple[int, int]:
    if element.is_unsigned:
        return 0, 2**element.width - 1
    return -(2 ** (element.width - 1)), 2 ** (element.width - 1) - 1


@rewrites("mhlo.xla.rng_get_and_update_state")
def random_state(op: Any) -> Sequence[Any]:
    """Create an arbitrary state: XLA's expansion of Rng keeps one for all calls of a program, and seeds it itself."""
    type_ = op.results[0].type
    limits = (hlo.constant(hlo.tensor(type_, []), value) for value in (0, 2**64 - 1))
    extents = stablehlo.constant(ir.DenseElementsAttr.get(np.array(type_.shape, np.int64)))
    return [stablehlo.rng(*limits, extents, stablehlo.RngDistributionAttr.get("UNIFORM"))]
