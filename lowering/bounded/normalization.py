"""Batch normalization over dynamic dimensions, decomposed into sums and arithmetic: the element count is a size.

As in `normalization.py`, floats below 32 bits are computed in f32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.dynamic_sizes import agree
from stablexla.lowering.bounded.bounded import Site, expands
from stablexla.lowering.bounded.values import Scalar, broadcast, emit, masked, number, tensor


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
        self.features = ir.RankedTensorType.get([self.extents[self.feature]], self.element)
        scalar = ir.RankedTensorType.get([], self.element)
        self.count = broadcast(emit("stablehlo.convert", [count.value], [scalar]), self.features.shape)
        epsilon = ir.DenseElementsAttr.get_splat(
            scalar, ir.FloatAttr.get(self.element, site.op.attributes["epsilon"].value)
        )
        self.epsilon = broadcast(emit("stablehlo.constant", [], [scalar], {"value": epsilon}), self.features.shape)

    def wide(self, value: Any) -> Any:
        """Promote an array to the computing type."""
        type_ = ir.RankedTensorType.get(list(value.type.shape), self.element)
        return value if value.type == type_ else emit("stablehlo.convert", [value], [type_])

    def narrow(self, value: Any) -> Any:
        """Round an array to the operand's type."""
        type_ = tensor(self.x.type, value.type.shape)
        return value if value.type == type_ else emit("stablehlo.convert", [value], [type_])

    def spread(self, value: Any) -> Any:
        """Broadcast per-feature values to the elements."""
        return broadcast(value, self.extents, [self.feature])

    def sum(self, value: Any) -> Any:
        """Sum over the elements of each feature."""
        seen = masked(value, self.sizes, number(value.type, "0"))
        zero = number(value.type, "0")
        gone = [place for place in range(len(self.extents)) if place != self.feature]
        attributes = {"dimensions": ir.DenseI64ArrayAttr.get(gone)}
        made = ir.Operation.create("stablehlo.reduce", [self.features], [seen, zero], attributes, regions=1)
        block = ir.Block.create_at_start(made.regions[0], [zero.type] * 2, [made.location] * 2)
        with ir.InsertionPoint(block):
            total = emit("stablehlo.add", list(block.arguments), [zero.type])
            ir.Operation.create("stablehlo.return", operands=[total])
        return made.results[0]


def _of(name: str, *operands: Any) -> Any:
    return emit(f"stablehlo.{name}", operands, [operands[0].type])


@expands("stablehlo.batch_norm_training")
def batch_norm_training(site: Site) -> None:
    """The operand normalized by its own mean and variance per feature, the mean, and the variance."""
    norm = _Norm(site)
    x, scale, offset = (norm.wide(v) for v in site.op.operands)
    mean = _of("divide", norm.sum(x), norm.count)
    centered = _of("subtract", x, norm.spread(mean))
    variance = _of("divide", norm.sum(_of("multiply", centered, centered)), norm.count)
    deviation = _of("sqrt", _of("add", variance, norm.epsilon))
    scaled = _of("multiply", norm.spread(scale), _of("divide", centered, norm.spread(deviation)))
    made = _of("add", scaled, norm.spread(offset))
    site.replace([norm.narrow(v) for v in (made, mean, variance)])


@expands("stablehlo.batch_norm_grad")
def batch_norm_grad(site: Site) -> None:
    """The gradients of the operand, the scale and the offset, by the formulas of `normalization.py`."""
    norm = _Norm(site)
    x, scale, mean, variance, grad = (norm.wide(v) for v in site.op.operands)
    centered = _of("subtract", x, norm.spread(mean))
    plain, weighted = norm.sum(grad), norm.sum(_of("multiply", grad, centered))
    shifted = _of("add", variance, norm.epsilon)
    deviation = _of("sqrt", shifted)
    slope = _of("divide", _of("divide", weighted, shifted), norm.count)
    lower = _of("multiply", norm.spread(slope), centered)
    level = _of("subtract", grad, norm.spread(_of("divide", plain, norm.count)))
    factor = norm.spread(_of("divide", scale, deviation))
    made = _of("multiply", factor, _of("subtract", level, lower))
    site.replace([norm.narrow(v) for v in (made, _of("divide", weighted, deviation), plain)])
