"""Lowering of batch normalization into reductions over all dimensions but the feature's, and element-wise arithmetic.

Floats below 32 bits are computed in f32 throughout, and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import arith, math

from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.conversion import in_element_type
from stablexla.lowering.rules.shape import broadcast
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import (
    PARALLEL,
    REDUCTION,
    Output,
    elementwise,
    generic,
    identity,
    projection,
    read_all,
)
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import compute_type, constant, from_storage, narrow, widen
from stablexla.lowering.support.types import TensorType, value_type


@lowers("stablehlo.batch_norm_training")
def batch_norm_training(ctx: LoweringContext, x: ir.Value, scale: ir.Value, offset: ir.Value) -> list[ir.Value]:
    """The operand normalized by its own mean and variance per feature, the mean, and the variance."""
    norm = _Norm(ctx)
    (total,) = norm.sums([x], lambda v: [v])
    mean = norm.on_features([total], lambda v: norm.mean(v))
    (squares,) = norm.sums([x, norm.spread(mean)], lambda v, m: [arith.mulf(d := arith.subf(v, m), d)])
    variance = norm.on_features([squares], lambda v: norm.mean(v))
    made = _normalized(norm, x, scale, offset, mean, variance)
    return [made, norm.narrow_features(mean), norm.narrow_features(variance)]


@lowers("stablehlo.batch_norm_inference")
def batch_norm_inference(
    ctx: LoweringContext, x: ir.Value, scale: ir.Value, offset: ir.Value, mean: ir.Value, variance: ir.Value
) -> list[ir.Value]:
    """The operand normalized by a given mean and variance."""
    norm = _Norm(ctx)
    return [_normalized(norm, x, scale, offset, norm.wide(mean), norm.wide(variance))]


@lowers("stablehlo.batch_norm_grad")
def batch_norm_grad(
    ctx: LoweringContext, x: ir.Value, scale: ir.Value, mean: ir.Value, variance: ir.Value, grad: ir.Value
) -> list[ir.Value]:
    """The gradients of the operand, the scale and the offset.

    With s = sqrt(variance + epsilon): the offset's is the sum of grad, the scale's that of grad * (x - mean) / s, and
    the operand's scale / s * (grad - mean of grad - (x - mean) * mean of (grad * (x - mean)) / s^2).
    """
    norm = _Norm(ctx)
    mean, variance, scale = norm.wide(mean), norm.wide(variance), norm.wide(scale)
    plain, weighted = norm.sums(
        [x, grad, norm.spread(mean)], lambda v, g, m: [g, arith.mulf(g, arith.subf(v, m))], count=2
    )
    grad_scale = norm.on_features([weighted, variance], lambda w, v: arith.divf(w, norm.deviation(v)))
    factor = norm.on_features([scale, variance], lambda g, v: arith.divf(g, norm.deviation(v)))
    shift = norm.on_features([plain], lambda v: norm.mean(v))
    slope = norm.on_features([weighted, variance], lambda w, v: norm.mean(arith.divf(w, norm.shifted(v))))
    spread = [norm.spread(v) for v in (mean, factor, shift, slope)]

    def gradient(v: ir.Value, g: ir.Value, m: ir.Value, f: ir.Value, d: ir.Value, c: ir.Value) -> ir.Value:
        return arith.mulf(f, arith.subf(arith.subf(g, d), arith.mulf(c, arith.subf(v, m))))

    grad_operand = norm.on_elements([x, grad, *spread], gradient)
    return [grad_operand, norm.narrow_features(grad_scale), norm.narrow_features(plain)]


def _normalized(
    norm: _Norm, x: ir.Value, scale: ir.Value, offset: ir.Value, mean: ir.Value, variance: ir.Value
) -> ir.Value:
    """Emit scale * (x - mean) / sqrt(variance + epsilon) + offset."""
    deviation = norm.on_features([variance], norm.deviation)
    spread = [norm.spread(v) for v in (norm.wide(scale), norm.wide(offset), mean, deviation)]
    return norm.on_elements(
        [x, *spread], lambda v, s, o, m, d: arith.addf(arith.mulf(s, arith.divf(arith.subf(v, m), d)), o)
    )


@dataclass(frozen=True)
class _Norm:
    """The arrays of one batch normalization: elements in their own type, per-feature values in the computing type."""

    ctx: LoweringContext

    @property
    def _array(self) -> TensorType:
        return self.ctx.operand_types[0]

    @property
    def _element(self) -> ElementType:
        return self._array.element

    @property
    def _wide(self) -> ElementType:
        return compute_type(self._element) or self._element

    @property
    def _feature(self) -> int:
        return int(self.ctx.attributes["feature_index"])

    @property
    def _features(self) -> TensorType:
        return TensorType(self._wide, (self._array.shape[self._feature],))

    @property
    def _count(self) -> int:
        """The number of elements per feature."""
        count = 1
        for d, extent in enumerate(self._array.shape):
            count *= extent if d != self._feature else 1
        return count

    def _number(self, value: float) -> ir.Value:
        return constant(value_type(self._wide), value)

    def mean(self, total: ir.Value) -> ir.Value:
        """Return a feature's mean from its sum."""
        return arith.divf(total, self._number(self._count))

    def shifted(self, variance: ir.Value) -> ir.Value:
        """Return variance + epsilon."""
        epsilon = hlo_ir.FloatAttr(self.ctx.attributes["epsilon"]).value
        return arith.addf(variance, self._number(epsilon))

    def deviation(self, variance: ir.Value) -> ir.Value:
        """Return sqrt(variance + epsilon)."""
        return math.sqrt(self.shifted(variance))

    def wide(self, features: ir.Value) -> ir.Value:
        """Promote per-feature values to the computing type."""
        return in_element_type(features, TensorType(self._element, self._features.shape), self._wide)

    def narrow_features(self, features: ir.Value) -> ir.Value:
        """Round per-feature values to the operand's type."""
        return in_element_type(features, self._features, self._element)

    def spread(self, features: ir.Value) -> ir.Value:
        """Broadcast per-feature values to the elements."""
        return broadcast(features, self._features, TensorType(self._wide, self._array.shape), [self._feature])

    def on_features(self, operands: Sequence[ir.Value], body: Callable[..., ir.Value]) -> ir.Value:
        """Apply an element-wise function to per-feature values."""
        return elementwise(operands, [self._features] * len(operands), [self._features], body)[0]

    def on_elements(self, operands: Sequence[ir.Value], body: Callable[..., ir.Value]) -> ir.Value:
        """Apply a function to elements and broadcast values in the computing type; round to the operand's type."""
        types = [TensorType(self._of(v), self._array.shape) for v in operands]

        def narrowed(*values: ir.Value) -> ir.Value:
            wide = [widen(v, t.element) for v, t in zip(values, types, strict=True)]
            return narrow(body(*wide), self._element)

        return elementwise(operands, types, [self._array], narrowed)[0]

    def sums(
        self, operands: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]], count: int = 1
    ) -> list[ir.Value]:
        """Sum `body` of the elements over all dimensions but the feature's."""
        rank = self._array.rank
        elements = [self._of(v) for v in operands]
        inputs, maps = read_all(operands, [identity(rank)] * len(operands))

        def add_up(arguments: Sequence[ir.Value]) -> list[ir.Value]:
            given, totals = arguments[: len(operands)], arguments[len(operands) :]
            wide = [
                widen(v if v.type == value_type(e) else from_storage(v, e), e)
                for v, e in zip(given, elements, strict=True)
            ]
            return [arith.addf(t, v) for t, v in zip(totals, body(*wide), strict=True)]

        kept = projection(rank, [self._feature])
        iterators = [PARALLEL if d == self._feature else REDUCTION for d in range(rank)]
        outputs = [Output(self._features, self._number(0.0))] * count
        return generic(inputs, outputs, [*maps, *[kept] * count], iterators, add_up)

    def _of(self, value: ir.Value) -> ElementType:
        """Return the element type of an array: the operand's or the computing type."""
        wide = value.type.element_type == value_type(self._wide)
        return self._wide if wide else self._element
