"""Convolutions and transposed ones in any number of dimensions, and their gradients, spelled as JAX spells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, broadcast, convert, full_like, total, wide
from stablexla.interop.torch.registry import aten

Sizes = Sequence[int]


@aten("aten.convolution.default")
def convolution(
    call: Call, x: XlaOp, weight: XlaOp, bias: XlaOp | None, stride: Sizes, padding: Sizes, dilation: Sizes,
    transposed: bool, output_padding: Sizes, groups: int,
) -> XlaOp:  # fmt: skip
    window = _Window.of(x, stride, padding, dilation, groups)
    # A bias of halves is added before the one rounding.
    type_ = None if bias is None or not x.element_type.is_float else wide(bias).element_type.name
    made = (window.transposed if transposed else window.convolved)(x, weight, call.dimensions[2:], type_)
    if bias is None:
        return made
    return sx.add(made, broadcast(sx.reshape(wide(bias), (bias.shape.size, *_ones(x))), made.shape.dimensions))


@aten("aten.convolution_backward.default")
def convolution_backward(
    call: Call, grad: XlaOp, x: XlaOp, weight: XlaOp, bias_sizes: Sizes | None, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, output_padding: Sizes, groups: int, output_mask: Sequence[bool],
) -> list[XlaOp | None]:  # fmt: skip
    """A convolution's gradient by its input is the transposed one, and the other way around; those by the weights are
    the same with input and gradient in each other's place."""
    window = _Window.of(x, stride, padding, dilation, groups)
    by_x = by_weight = by_bias = None
    if output_mask[0]:
        by_x = (window.convolved if transposed else window.transposed)(grad, weight, x.shape.dimensions[2:])
    if output_mask[1]:
        seen, made = (grad, x) if transposed else (x, grad)
        by_weight = window.by_weight(seen, made, weight.shape.dimensions)
    if output_mask[2]:
        by_bias = total(wide(grad), (0, *range(2, grad.shape.rank)))
    return [by_x, by_weight, by_bias]


@dataclass(frozen=True)
class _Window:
    """How the window of a convolution moves, and the groups of features that it has."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int

    @classmethod
    def of(cls, x: XlaOp, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> _Window:
        count = x.shape.rank - 2
        each = [tuple(x) * count if len(x) == 1 else tuple(x) for x in (stride, padding, dilation)]
        return cls(each[0], each[1], each[2], groups)

    def convolved(self, x: XlaOp, weight: XlaOp, sizes: Sizes, type_: str | None = None) -> XlaOp:
        """Return the convolution of x[N,C,...] and weight[O,C/groups,...], f[N,O,sizes]."""
        if prod((*x.shape.dimensions, *weight.shape.dimensions)) == 0:
            return _zeros(x, (x.shape.dimensions[0], weight.shape.dimensions[0], *sizes), type_)
        padding, ones = [(p, p) for p in self.padding], _ones(x)
        return sx.conv_general_dilated(
            x, weight, self.stride, padding, ones, self.dilation, None, self.groups, preferred_element_type=type_
        )

    def transposed(self, x: XlaOp, weight: XlaOp, sizes: Sizes, type_: str | None = None) -> XlaOp:
        """Return the transposed convolution of x[N,O,...] and weight[O,C/groups,...], f[N,C,sizes]."""
        features, seen, *window = weight.shape.dimensions
        result = (x.shape.dimensions[0], seen * self.groups, *sizes)
        if prod((*x.shape.dimensions, *weight.shape.dimensions)) == 0:
            return _zeros(x, result, type_)
        padding = []
        for low, d, s, k, before, after in zip(
            self.padding, self.dilation, self.stride, window, x.shape.dimensions[2:], sizes, strict=True
        ):
            reach = d * (k - 1)
            padding.append((reach - low, after - (before - 1) * s - 1 + low))
        if self.groups > 1:  # the groups go over to the other features
            parts = sx.reshape(weight, (self.groups, features // self.groups, seen, *window))
            parts = sx.transpose(parts, (1, 0, *range(2, parts.shape.rank)))
            weight = sx.reshape(parts, (features // self.groups, self.groups * seen, *window))
        spatial = "DHW"[-len(window) :]
        numbers = (f"NC{spatial}", f"IO{spatial}", f"NC{spatial}")
        flipped = sx.rev(weight, tuple(range(2, weight.shape.rank)))
        return sx.conv_general_dilated(
            x, flipped, _ones(x), padding, self.stride, self.dilation, numbers, self.groups,
            preferred_element_type=type_,
        )  # fmt: skip

    def by_weight(self, x: XlaOp, grad: XlaOp, sizes: Sizes) -> XlaOp:
        """Return the gradient by the weights, of these sizes, of a convolution of x; its result has this one."""
        if prod((*x.shape.dimensions, *grad.shape.dimensions)) == 0:
            return full_like(x, 0, sizes)
        padding = []
        for low, d, s, k, before, after in zip(
            self.padding, self.dilation, self.stride, sizes[2:], x.shape.dimensions[2:], grad.shape.dimensions[2:],
            strict=True,
        ):  # fmt: skip
            padding.append((low, d * (k - 1) + s * (after - 1) + 1 - before - low))
        spatial = "DHW"[-len(padding) :]
        # The batch is what is summed over.
        numbers = (f"CN{spatial}", f"IO{spatial}", f"CN{spatial}")
        return sx.conv_general_dilated(
            x, grad, self.dilation, padding, _ones(x), self.stride, numbers, batch_group_count=self.groups
        )


def _zeros(x: XlaOp, sizes: Sizes, type_: str | None) -> XlaOp:
    made = full_like(x, 0, sizes)
    return made if type_ is None else convert(made, type_)


def _ones(x: XlaOp) -> tuple[int, ...]:
    return (1,) * (x.shape.rank - 2)
