"""Operators of lists of tensors, which optimizers call: each element by the rule of the operator of one tensor."""

from __future__ import annotations

from typing import Any

import torch

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, wide
from stablexla.interop.torch.registry import aten

# The overload of the operator of one tensor, by that of the operator of lists, and where it is another one.
_OVERLOADS = {"List": "Tensor", "Tensor": "Tensor", "Scalar": "Scalar", "ScalarList": "Scalar", "default": "default"}
_OTHERS = {
    "clamp_max.Scalar": "clamp_max.default", "clamp_max.ScalarList": "clamp_max.default",
    "clamp_min.Scalar": "clamp_min.default", "clamp_min.ScalarList": "clamp_min.default",
    "maximum.List": "maximum.default", "maximum.Scalar": "clamp_min.default", "maximum.ScalarList": "clamp_min.default",
    "minimum.List": "minimum.default", "minimum.Scalar": "clamp_max.default", "minimum.ScalarList": "clamp_max.default",
    "pow.List": "pow.Tensor_Tensor", "pow.Scalar": "pow.Tensor_Scalar", "pow.ScalarList": "pow.Tensor_Scalar",
    "pow.ScalarAndTensor": "pow.Scalar", "norm.Scalar": "linalg_vector_norm.default",
    "addcmul.Scalar": "addcmul.default",
    "addcmul.ScalarList": "addcmul.default", "addcmul.Tensor": "addcmul.default", "addcdiv.Scalar": "addcdiv.default",
    "addcdiv.ScalarList": "addcdiv.default", "addcdiv.Tensor": "addcdiv.default",
}  # fmt: skip
_PREFIX = "aten::_foreach_"
_VALUES = ("Scalar", "ScalarList", "Tensor")
# Operators with arguments that are no operands of each element.
_WITH_OPTIONS = {
    "_foreach_add",
    "_foreach_sub",
    "_foreach_addcmul",
    "_foreach_addcdiv",
    "_foreach_norm",
    "_foreach_powsum",
}


def _operators() -> list[str]:
    """Return the full names of PyTorch's operators of lists that change nothing in place."""
    names = [name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith(_PREFIX)]
    pairs = [(packet, overload or "default") for packet, _, overload in (name.partition(".") for name in names)]
    return sorted(
        f"aten.{packet}.{overload}" for packet, overload in pairs if packet[-1] != "_" and "out" not in overload
    )


def _one(call: Call) -> str:
    """Return the full name of the operator of one tensor."""
    _, packet, overload = str(call.operator).split(".")
    name = packet.removeprefix("_foreach_")
    return "aten." + _OTHERS.get(f"{name}.{overload}", f"{name}.{_OVERLOADS.get(overload)}")


def _each(call: Call, *operands: Any, **named: Any) -> list[sx.XlaOp]:
    """Return the results for all elements; operands that are no lists are those of every element."""
    parts = [[x[place] if isinstance(x, (list, tuple)) else x for x in operands] for place in range(len(call.shapes))]
    return [call.apply(_one(call), *given, shape=shape, **named) for given, shape in zip(parts, call.shapes)]


@aten(
    "aten._foreach_add.Scalar", "aten._foreach_add.ScalarList", "aten._foreach_sub.Scalar",
    "aten._foreach_sub.ScalarList", *[name for name in _operators() if name.split(".")[1] not in _WITH_OPTIONS],
)  # fmt: skip
def each(call: Call, *operands: Any) -> list[sx.XlaOp]:
    return _each(call, *operands)


@aten("aten._foreach_add.List", "aten._foreach_add.Tensor", "aten._foreach_sub.List")
def each_times_alpha(call: Call, *operands: Any, alpha: Any) -> list[sx.XlaOp]:
    return _each(call, *operands, alpha=alpha)


@aten(*[f"aten._foreach_{name}.{overload}" for name in ("addcmul", "addcdiv") for overload in _VALUES])
def each_with_value(call: Call, first: Any, second: Any, third: Any, values: Any) -> list[sx.XlaOp]:
    results = []
    for place, shape in enumerate(call.shapes):
        value = values[place] if isinstance(values, (list, tuple)) else values
        if isinstance(values, sx.XlaOp):
            value = sx.reshape(sx.slice_in_dim(values, place, place + 1), ())
            product = call.apply("aten.mul.Tensor", second[place], value, shape=shape)
            results.append(call.apply(_one(call), first[place], product, third[place], value=1, shape=shape))
        else:
            results.append(call.apply(_one(call), first[place], second[place], third[place], value=value, shape=shape))
    return results


@aten("aten._foreach_norm.Scalar")
def each_norm(call: Call, x: Any, order: Any, dtype: torch.dtype | None) -> list[sx.XlaOp]:
    return _each(call, x, order, None, False, dtype=dtype)


@aten("prims.fma.default")
def fma(call: Call, x: Value, y: Value, z: Value) -> sx.XlaOp:
    """Return x * y + z, in which Dynamo writes optimizers' steps."""
    factor, other, summand = (wide(each) for each in call.promoted(x, y, z, type=call.type))
    return sx.add(sx.mul(factor, other), summand)
