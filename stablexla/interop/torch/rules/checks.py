"""Assertions, of which nothing is computed: those of shapes and types hold when the program is built."""

from __future__ import annotations

from typing import Any

from stablexla.interop.torch.call import Call
from stablexla.interop.torch.registry import aten


@aten(
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._assert_scalar.default",
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
)
def unchecked(call: Call, *_: object) -> None:
    return None


@aten("higher_order.with_effects")
def with_effects(call: Call, token: None, operator: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """AOTAutograd's call of an operator that checks numbers, in order with others by a token."""
    made = call.translator.apply(operator, args, kwargs, call.shapes[1:])
    return [token, *made] if isinstance(made, (list, tuple)) else [token, made]
