"""The operators of `XlaOp` and the operations that are methods of `XlaBuilder`, filled into the builder's table."""

from stablexla.builder.operators import OPERATORS
from stablexla.ops import contraction, control, custom_call, dynamic_size, elementwise, shape, tuples
from stablexla.ops.devices import effects

_ELEMENTWISE = (
    *("add", "sub", "mul", "div", "rem", "pow", "and_", "or_", "xor", "shift_left", "shift_right"),
    *("neg", "not_", "abs", "eq", "ne", "lt", "le", "gt", "ge"),
)
OPERATORS.update({name: getattr(elementwise, name) for name in _ELEMENTWISE})
OPERATORS.update(
    composite_call=control.composite_in,
    custom_call=custom_call.custom_call_in,
    dot=contraction.dot,
    get_dimension_size=shape.get_dimension_size,
    get_tuple_element=tuples.get_tuple_element,
    index=shape.static_index,
    infeed=effects.infeed_in,
    recv=effects.recv_with_token,
    set_dimension_size=dynamic_size.set_dimension_size,
)
