"""Batch normalization over dynamic dimensions, decomposed into sums and arithmetic: the element count is a size.

As in `normalization.py`, floats below 32 bits are computed in f32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.dynamic_sizes import agree
from stablexla.dialects.hlo import broadcast, convert, elementwise, emit, number, reduce
from stablexla.lowering.bounded.bounded import Site, expands
from stablexla.lowering.bounded.values import Scalar, masked


class _Norm:
    """The arrays of one batch normalization, in the computing type."""

    def __init__(self, site: Site) -> None:
        self.x = site.op.operands[0]
        self.extents = list(self.x.type.shape)
        self.feature = int(site.op.attributes["feature_index"])
        self.sizes = agree(site.use.sizes)
        element = self.x.type.element_type
        self.element = element if element.width >= 32 else ir.F32Type.get()
        count = Scalar.of(1)
        for place in range(len(self.extents)):
            if place != self.feature:
                count = count * self.sizes.get(place, self.extents[place])
        features = [self.extents[self.feature]]
        scalar = ir.RankedTensorType.get([], self.element)
        self.count = broadcast(convert(count.value, self.element), features)
        epsilon = ir.DenseElementsAttr.get_splat(
            scalar, ir.FloatAttr.get(self.element, site.op.attributes["epsilon"].value)
        )
        self.epsilon = broadcast(emit("stablehlo.constant", [], [scalar], {"value": epsilon}), features)

    def wide(self, value: Any) -> Any:
        """Promote an array to the computing type."""
        return convert(value, self.element)

    def narrow(self, value: Any) -> Any:
        """Round an array to the operand's type."""
        return convert(value, self.x.type.element_type)

    def spread(self, value: Any) -> Any:
        """Broadcast per-feature values to the elements."""
        return broadcast(value, self.extents, [self.feature])

    def sum(self, value: Any) -> Any:
        """Sum over the elements of each feature."""
        seen = masked(value, self.sizes, number(value.type, "0"))
        zero = number(value.type, "0")
        gone = [place for place in range(len(self.extents)) if place != self.feature]
        return reduce(seen, zero, gone, "add")


@expands("stablehlo.batch_norm_training")
def batch_norm_training(site: Site) -> None:
    """The operand normalized by its own mean and variance per feature, the mean, and the variance."""
    norm = _Norm(site)
    x, scale, offset = (norm.wide(v) for v in site.op.operands)
    mean = elementwise("divide", norm.sum(x), norm.count)
    centered = elementwise("subtract", x, norm.spread(mean))
    variance = elementwise("divide", norm.sum(elementwise("multiply", centered, centered)), norm.count)
    deviation = elementwise("sqrt", elementwise("add", variance, norm.epsilon))
    scaled = elementwise("multiply", norm.spread(scale), elementwise("divide", centered, norm.spread(deviation)))
    made = elementwise("add", scaled, norm.spread(offset))
    site.replace([norm.narrow(v) for v in (made, mean, variance)])


@expands("stablehlo.batch_norm_grad")
def batch_norm_grad(site: Site) -> None:
    """The gradients of the operand, the scale and the offset, by the formulas of `normalization.py`."""
    norm = _Norm(site)
    x, scale, mean, variance, grad = (norm.wide(v) for v in site.op.operands)
    centered = elementwise("subtract", x, norm.spread(mean))
    plain, weighted = norm.sum(grad), norm.sum(elementwise("multiply", grad, centered))
    shifted = elementwise("add", variance, norm.epsilon)
    deviation = elementwise("sqrt", shifted)
    slope = elementwise("divide", elementwise("divide", weighted, shifted), norm.count)
    lower = elementwise("multiply", norm.spread(slope), centered)
    level = elementwise("subtract", grad, norm.spread(elementwise("divide", plain, norm.count)))
    factor = norm.spread(elementwise("divide", scale, deviation))
    made = elementwise("multiply", factor, elementwise("subtract", level, lower))
    site.replace([norm.narrow(v) for v in (made, elementwise("divide", weighted, deviation), plain)])
