"""Precision algorithms of dot_general: operands rounded to a smaller type, or split into a sum of its numbers.

An operand of c components is x = x1 + x2 + ... + xc, each the remainder rounded to the type (as in bf16x3). The largest
products of components are computed, as many as the algorithm states, and accumulated from the smallest. Infinities and
overflows are those of the largest product: what the others make of them, as inf - inf, counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isqrt

import mlir.ir as ir
from mlir.dialects import arith, math

from stablexla.dialects.attributes.attributes import DotAlgorithm
from stablexla.dialects.element_types import BY_MLIR, BY_NAME, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.conversion import IEEE, Layout, convert_value, in_element_type, reduce_value
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import elementwise
from stablexla.lowering.support.scalars import cmpf
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import TensorType

TF32 = Layout(8, 10)
IN_TF32 = "stablexla.tf32"
"""Attribute of an f32 contraction whose operands are exact in tf32, so that tensor cores may multiply them."""
Contract = Callable[["Part", ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class Part:
    """The types of one of the contractions that an algorithm splits the operation into."""

    operand_types: list[TensorType]
    result: TensorType
    in_tf32: bool = False


def is_plain(ctx: LoweringContext, accumulator: ElementType) -> bool:
    """Whether there is no algorithm, or only the default one: the operands' types, one product.

    Algorithms are about floats; products of integers are exact, whatever one says, as in XLA.
    """
    if "algorithm" not in ctx.attributes or not any(
        t.element.is_float or t.element.is_complex for t in ctx.operand_types
    ):
        return True
    algorithm = DotAlgorithm.read(ctx.attributes["algorithm"])
    own = tuple(t.element.mlir for t in ctx.operand_types)
    return own == (algorithm.lhs_precision, algorithm.rhs_precision) and (
        (algorithm.accumulation, algorithm.primitive_operations) == (accumulator.mlir, 1)
    )


def contract_parts(ctx: LoweringContext, lhs: ir.Value, rhs: ir.Value, contract: Contract) -> ir.Value:
    """Emit the operation by its algorithm, with `contract` for its products."""
    algorithm = DotAlgorithm.read(ctx.attributes["algorithm"])
    total = _accumulator(ctx, algorithm)
    fewest = isqrt(algorithm.primitive_operations - 1) + 1  # JAX writes "three products" without "of two components"
    in_tf32 = algorithm.lhs_precision == algorithm.rhs_precision == "tf32" and total.element == BY_NAME["f32"]
    lefts = _components(ctx, 0, lhs, algorithm.lhs_precision, max(algorithm.lhs_components, fewest))
    rights = _components(ctx, 1, rhs, algorithm.rhs_precision, max(algorithm.rhs_components, fewest))
    pairs = sorted(((i, j) for i in range(len(lefts)) for j in range(len(rights))), key=lambda p: (sum(p), p))
    summed: ir.Value | None = None
    for i, j in reversed(pairs[: algorithm.primitive_operations]):
        (x, x_type), (y, y_type) = lefts[i], rights[j]
        product = contract(Part([x_type, y_type], total, in_tf32), x, y)
        add = arith.addf if i or j else _add_to_largest
        summed = product if summed is None else elementwise([summed, product], [total, total], [total], add)[0]
    assert summed is not None
    return in_element_type(summed, total, ctx.result.element)


def _add_to_largest(rest: ir.Value, product: ir.Value) -> ir.Value:
    """Add the sum of the smaller products, where it is finite."""
    return arith.addf(product, arith.select(_is_finite(rest), rest, constant(rest.type, 0.0)))


def _is_finite(x: ir.Value) -> ir.Value:
    return cmpf("OLT", math.absf(x), constant(x.type, inf))


def _accumulator(ctx: LoweringContext, algorithm: DotAlgorithm) -> TensorType:
    """Return the accumulation type: f32 for smaller floats, which is more exact than required."""
    element = BY_MLIR.get(algorithm.accumulation)
    if element is None or not element.is_float:
        raise ctx.unsupported(f"the algorithm {algorithm}: sums of {algorithm.accumulation}")
    return TensorType(element if element.bits >= 32 else BY_NAME["f32"], ctx.result.shape)


def _components(
    ctx: LoweringContext, operand: int, value: ir.Value, precision: str, count: int
) -> list[tuple[ir.Value, TensorType]]:
    """Split the operand into `count` arrays of a smaller type."""
    own = ctx.operand_types[operand]
    target = own.element if precision == "tf32" else BY_MLIR.get(precision)
    if (
        target is None
        or not (own.element.is_float and target.is_float)
        or (precision == "tf32" and own.element.bits != 32)
    ):
        raise ctx.unsupported(f"an algorithm that makes {precision} of {own.element.mlir}")
    type_ = TensorType(target, own.shape)
    if own.element == target and precision != "tf32":
        return [(value, own)]  # all further ones are 0
    if own.element.bits < 32:
        value = in_element_type(value, own, BY_NAME["f32"])
        own = TensorType(BY_NAME["f32"], own.shape)

    layout = TF32 if precision == "tf32" else IEEE.get(target.name)
    largest = _largest(layout, IEEE[own.element.name]) if count > 1 else None

    def rounded(x: ir.Value) -> ir.Value:
        if largest is not None:  # what is above it does not become infinite, but leaves a rest
            bounds = [constant(x.type, sign * largest) for sign in (1, -1)]
            within = arith.maximumf(arith.minimumf(x, bounds[0]), bounds[1])
            x = arith.select(_is_finite(x), within, x)
        return reduce_value(x, IEEE["f32"], TF32) if precision == "tf32" else convert_value(x, own.element, target)

    def rest(x: ir.Value) -> ir.Value:
        return arith.subf(x, convert_value(rounded(x), target, own.element))

    found = []
    for number in range(count):
        found.append((elementwise([value], [own], [type_], rounded)[0], type_))
        if number + 1 < count:
            value = elementwise([value], [own], [own], rest)[0]
    return found


def _largest(layout: Layout | None, own: Layout) -> float | None:
    """Return the largest number of a type that has as many exponents as the operand's own, else None."""
    if layout is None or layout.exponent != own.exponent:
        return None
    return (2.0 - 2.0**-layout.mantissa) * 2.0 ** ((1 << (own.exponent - 1)) - 1)
