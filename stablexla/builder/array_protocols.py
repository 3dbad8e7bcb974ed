"""Protocols of arrays that an op has no part in, as its value is known only when the program runs.

numpy's functions, conversions to Python's numbers, truth, length and iteration: each error names the function to take.
`names.py` has the functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from stablexla.builder.source import user_line
from stablexla.dialects.errors import ShapeError

if TYPE_CHECKING:
    from stablexla.builder.op import XlaOp

#: numpy's operators and those that swap their operands, for an op on the right of an array or scalar of numpy.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "remainder": "__rmod__",
    "power": "__rpow__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "floor_divide": "__rfloordiv__",
    "equal": "__eq__",
    "not_equal": "__ne__",
    "less": "__gt__",
    "greater": "__lt__",
    "less_equal": "__ge__",
    "greater_equal": "__le__",
}


class ArrayProtocols:
    """Mixin of XlaOp: the protocols of arrays in Python and numpy, each refused or left to the operators."""

    __slots__ = ()

    def __bool__(self) -> bool:
        hint = "sx.select or sx.conditional chooses between values when it runs; compare ops with `is`"
        _refuse(self, "an XlaOp has no truth value", hint)

    def __float__(self) -> float:
        _refuse(self, "an XlaOp is no Python float", 'sx.convert_element_type(x, "f32"); functions of math are in sx')

    def __int__(self) -> int:
        _refuse(self, "an XlaOp is no Python integer", 'sx.convert_element_type(x, "s32")')

    def __index__(self) -> int:
        _refuse(self, "an XlaOp is no Python integer", "sx.dynamic_slice takes ops for positions, sx.while_ counts")

    def __complex__(self) -> complex:
        _refuse(self, "an XlaOp is no Python number", 'sx.convert_element_type(x, "c64")')

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        _refuse(self, "an XlaOp is no array of numpy", "sx.compile(b.build(x)) runs the program for its value")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Numpy leaves `array + op` to our operators."""
        name = ufunc.__name__
        if method == "__call__" and name in _REFLECTED and len(inputs) == 2 and inputs[1] is self and not kwargs:
            other = inputs[0]  # of a scalar's comparison an array of rank 0
            scalar = isinstance(other, np.ndarray) and not other.ndim
            return getattr(self, _REFLECTED[name])(other[()] if scalar else other)
        return self._of_numpy(name)

    def __array_function__(self, function: Any, *args: object) -> Any:
        return self._of_numpy(function.__name__)

    def _of_numpy(self, name: str) -> NoReturn:
        from stablexla.builder.names import hint_for_op

        _refuse(self, f"np.{name} takes no XlaOp", hint_for_op(name, _shape(self).rank))

    def __floordiv__(self, other: object) -> NoReturn:
        shape = _shape(self)
        kind = shape.element_type if shape.is_array else None
        hint = ""
        if kind is not None and kind.is_float:
            hint = "sx.floor(lhs / rhs)"
        elif kind is not None and kind.is_signed:
            hint = "(lhs - sx.rem(sx.rem(lhs, rhs) + rhs, rhs)) / rhs; lhs / rhs rounds towards zero"
        elif kind is not None:
            hint = "lhs / rhs, which rounds unsigned integers down"
        raise ShapeError("an XlaOp has no //", operands={"op": shape}, source=user_line(), hint=hint)

    __rfloordiv__ = __floordiv__

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            from stablexla.builder.names import hint_for_op, no_attribute

            raise no_attribute("XlaOp", name, hint_for_op(name, self.shape.rank))


def _shape(op: Any) -> Any:
    """Return the op's shape."""
    found: XlaOp = op
    return found.shape


def _refuse(op: Any, what: str, hint: str) -> NoReturn:
    summary = f"{what}: its value is known when the program runs"
    raise ShapeError(summary, operands={"op": _shape(op)}, source=user_line(), hint=hint)
