"""A value of a computation under construction, with Python's operators.

An op of tuple shape is a list of values here: StableHLO's tuples are never emitted.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import jaxlib.mlir.ir as ir

from stablexla.builder.array_protocols import ArrayProtocols
from stablexla.builder.operators import operator
from stablexla.builder.source import ends_at_user, user_line
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.shapes import Shape
from stablexla.dialects.uncopied import Uncopied

if TYPE_CHECKING:
    from stablexla.builder.builder import XlaBuilder
    from stablexla.builder.checking import Operand


class XlaOp(ArrayProtocols, Uncopied):
    """A value in a builder's computation: the operand and result of operations.

    The operators `+ - * / % **`, `& | ^ ~ << >>`, `== != < <= > >=`, `@` and `abs` build the operation of that meaning
    with XLA's strict rules: operands of one element type, and of one rank unless one is a scalar. `%` is XLA's
    remainder, which has the sign of the dividend; `>>` keeps the sign of signed integers. A Python number becomes a
    constant of the other operand's element type.

    `==` builds a comparison, so compare two ops by `is`; an op has no truth value.

    >>> b = sx.XlaBuilder("example")
    >>> x = b.parameter(0, sx.f32[2, 3])
    >>> x * 2 + x
    XlaOp(stablehlo.add, f32[2,3])
    >>> first, second = sx.tuple((x, x > 0))
    >>> print(second.shape)
    pred[2,3]
    """

    __slots__ = ("__weakref__", "_values", "builder", "name", "shape")
    _in_place = "the op itself, whose value never changes; b.build(op).bytecode() for another process"

    def __init__(self, builder: XlaBuilder, shape: Shape, values: tuple[ir.Value, ...], name: str) -> None:
        self.builder = builder
        """The builder whose computation this value belongs to."""
        self.shape = shape
        """The value's shape."""
        self.name = name
        """The operation that made it, such as "stablehlo.add"."""
        self._values = values

    @property
    def values(self) -> tuple[ir.Value, ...]:
        """The MLIR values: one for an array or token, the leaves from left to right for a tuple."""
        return self._values

    @property
    def element_type(self) -> Any:
        """The element type of an array."""
        return self.shape.element_type

    @property
    def is_composite(self) -> bool:
        """Whether `sx.composite_call` made it."""
        return self.name == "stablehlo.composite"

    def __repr__(self) -> str:
        return f"XlaOp({self.name}, {self.shape})"

    __hash__ = object.__hash__

    def __len__(self) -> int:
        if not self.shape.is_tuple:
            self._no_tuple("has no length", "x.shape.dimensions[0]" if self.shape.rank else "")
        return len(self.shape.tuple_shapes)

    def __iter__(self) -> Iterator[XlaOp]:
        if not self.shape.is_tuple:
            rows = self.shape.dimensions[0] if self.shape.rank and self.shape.is_static else 0
            self._no_tuple("can't be unpacked", f"[x[k] for k in range({rows})], or sx.scan" if rows else "")
        return iter([operator("get_tuple_element")(self, index) for index in range(len(self))])

    def _no_tuple(self, what: str, hint: str) -> NoReturn:
        summary = f"an XlaOp of shape {self.shape} is no tuple and {what}"
        raise ShapeError(summary, source=user_line(), hint=hint)

    def __getitem__(self, index: Any) -> XlaOp:
        if self.shape.is_tuple:
            negative = isinstance(index, int) and index < 0
            return _build("get_tuple_element", self, index + len(self) if negative else index)
        return _build("index", self, index)

    def __add__(self, other: Operand) -> XlaOp:
        return _build("add", self, other)

    def __radd__(self, other: Operand) -> XlaOp:
        return _build("add", other, self)

    def __sub__(self, other: Operand) -> XlaOp:
        return _build("sub", self, other)

    def __rsub__(self, other: Operand) -> XlaOp:
        return _build("sub", other, self)

    def __mul__(self, other: Operand) -> XlaOp:
        return _build("mul", self, other)

    def __rmul__(self, other: Operand) -> XlaOp:
        return _build("mul", other, self)

    def __truediv__(self, other: Operand) -> XlaOp:
        return _build("div", self, other)

    def __rtruediv__(self, other: Operand) -> XlaOp:
        return _build("div", other, self)

    def __mod__(self, other: Operand) -> XlaOp:
        return _build("rem", self, other)

    def __rmod__(self, other: Operand) -> XlaOp:
        return _build("rem", other, self)

    def __pow__(self, other: Operand) -> XlaOp:
        return _build("pow", self, other)

    def __rpow__(self, other: Operand) -> XlaOp:
        return _build("pow", other, self)

    def __and__(self, other: Operand) -> XlaOp:
        return _build("and_", self, other)

    def __rand__(self, other: Operand) -> XlaOp:
        return _build("and_", other, self)

    def __or__(self, other: Operand) -> XlaOp:
        return _build("or_", self, other)

    def __ror__(self, other: Operand) -> XlaOp:
        return _build("or_", other, self)

    def __xor__(self, other: Operand) -> XlaOp:
        return _build("xor", self, other)

    def __rxor__(self, other: Operand) -> XlaOp:
        return _build("xor", other, self)

    def __lshift__(self, other: Operand) -> XlaOp:
        return _build("shift_left", self, other)

    def __rlshift__(self, other: Operand) -> XlaOp:
        return _build("shift_left", other, self)

    def __rshift__(self, other: Operand) -> XlaOp:
        return _build("shift_right", self, other)

    def __rrshift__(self, other: Operand) -> XlaOp:
        return _build("shift_right", other, self)

    def __neg__(self) -> XlaOp:
        return _build("neg", self)

    def __pos__(self) -> XlaOp:
        return self

    def __invert__(self) -> XlaOp:
        return _build("not_", self)

    def __abs__(self) -> XlaOp:
        return _build("abs", self)

    def __eq__(self, other: object) -> XlaOp:  # type: ignore[override]
        return _build("eq", self, other)

    def __ne__(self, other: object) -> XlaOp:  # type: ignore[override]
        return _build("ne", self, other)

    def __lt__(self, other: Operand) -> XlaOp:
        return _build("lt", self, other)

    def __le__(self, other: Operand) -> XlaOp:
        return _build("le", self, other)

    def __gt__(self, other: Operand) -> XlaOp:
        return _build("gt", self, other)

    def __ge__(self, other: Operand) -> XlaOp:
        return _build("ge", self, other)

    def __matmul__(self, other: XlaOp) -> XlaOp:
        return _build("dot", self, other)


for _name, _method in (*vars(XlaOp).items(), *vars(ArrayProtocols).items()):
    if inspect.isfunction(_method) and _name not in ("__init__", "__repr__", "__getattr__", "__hash__"):
        setattr(XlaOp, _name, ends_at_user(_method))


def _build(name: str, *operands: object) -> XlaOp:
    made: XlaOp = operator(name)(*operands)
    return made
