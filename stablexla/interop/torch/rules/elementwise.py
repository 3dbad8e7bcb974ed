"""Element-wise arithmetic, comparisons and activations."""

from __future__ import annotations

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, as_float, wide
from stablexla.interop.torch.registry import aten


@aten("aten.add.Tensor", "aten.add.Scalar")
def add(call: Call, lhs: Value, rhs: Value, *, alpha: Value = 1) -> sx.XlaOp:
    x, y = call.promoted(lhs, rhs, type=call.type)
    return sx.add(x, y if alpha == 1 else sx.mul(y, call.constant(alpha)))


@aten("aten.mul.Tensor", "aten.mul.Scalar")
def mul(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    return sx.mul(*call.promoted(lhs, rhs, type=call.type))


@aten("aten.tanh.default")
def tanh(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.tanh(wide(as_float(x)))


@aten("aten.relu.default")
def relu(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.max(x, 0)


@aten("aten.exp.default")
def exp(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.exp(wide(as_float(x)))


@aten("aten.sub.Tensor", "aten.sub.Scalar")
def sub(call: Call, lhs: Value, rhs: Value, *, alpha: Value = 1) -> sx.XlaOp:
    x, y = call.promoted(lhs, rhs, type=call.type)
    return sx.sub(x, y if alpha == 1 else sx.mul(y, call.constant(alpha)))
