"""The call of an operator, which its rule is given, and the functions that most rules are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.dialects.constants import constant_array
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.shapes import Shape
from stablexla.interop.torch.types import Number, result_type, torch_type, xla_type

if TYPE_CHECKING:
    from stablexla.interop.torch.translate import Translator

Value = XlaOp | Number


class Call:
    """One call of an operator of PyTorch in a graph.

    Attributes:
        operator: PyTorch's operator.
        shapes: the shapes of its results that are tensors, as PyTorch has them.
        translator: builds the graph.
    """

    def __init__(self, translator: Translator, operator: Any, shapes: Sequence[Shape | None]) -> None:
        self.translator = translator
        self.operator = operator
        self.shapes = shapes

    @property
    def shape(self) -> Shape:
        """The shape of the first result."""
        (shape, *_) = self.shapes
        assert shape is not None
        return shape

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The sizes of the first result."""
        return self.shape.dimensions

    @property
    def type(self) -> ElementType:
        """The element type of the first result."""
        return self.shape.element_type

    def is_contiguous(self, number: int) -> bool:
        """Return whether an argument of the operator in the graph is a tensor whose rows lie one after another."""
        node = self.translator.node
        argument = node.args[number] if node is not None and number < len(node.args) else None
        tensor = getattr(argument, "meta", {}).get("val")
        return isinstance(tensor, torch.Tensor) and tensor.is_contiguous()

    def constant(self, value: Any, type: str | ElementType | None = None, dimensions: Sequence[int] = ()) -> XlaOp:
        """Return a constant of an element type, that of the result by default; a number, in dimensions of this size."""
        wanted = self.type if type is None else element_type(type)
        if isinstance(value, Number):
            made = self.translator.builder.constant(_number(value, wanted))
            return sx.broadcast(made, tuple(dimensions)) if dimensions else made
        return self.translator.builder.constant(np.asarray(value, wanted.dtype))

    def iota(self, type: str | ElementType, dimensions: Sequence[int], dimension: int = 0) -> XlaOp:
        """Return an array that counts from 0 along one dimension."""
        return self.translator.builder.iota(Shape(element_type(type), dimensions), dimension)

    def op(self, value: Value, type: str | ElementType | None = None) -> XlaOp:
        """Return a number as a constant, of the result's element type or the given one; a tensor as it is, converted
        where a type is given."""
        if isinstance(value, XlaOp):
            return value if type is None else convert(value, type)
        return self.constant(value, type)

    def promoted(self, *operands: Value, type: str | ElementType | None = None) -> list[XlaOp]:
        """Return operands of one element type and of one shape, as PyTorch promotes and broadcasts them.

        Args:
            operands: tensors and numbers.
            type: the element type; without it, what they are promoted to.
        """
        wanted = result_type(*operands) if type is None else element_type(type)
        ops = [self.op(x, wanted) for x in operands]
        sizes = broadcast_sizes(*(x.shape.dimensions for x in ops))
        return [broadcast(x, sizes) for x in ops]

    def seed(self) -> XlaOp:
        """Return the state of a random number generator for one draw: u64[2], another one at each run and draw."""
        return self.translator.seed()

    def apply(self, operator: str, *args: Any, shape: Shape | None = None, **kwargs: Any) -> Any:
        """Return the result of another operator's rule, for arguments as in PyTorch.

        Args:
            operator: such as "aten.gelu.default".
            shape: of its result; by default that of this call's.
        """
        return self.translator.apply(operator, args, kwargs, [shape] if shape is not None else self.shapes)


def _number(value: Number, type: ElementType) -> Any:
    """Return a Python number as PyTorch converts it to an element type."""
    if type.is_pred:
        return np.bool_(value)
    if type.is_integer:
        bits = int(value.real if isinstance(value, complex) else value) % (1 << type.bits)
        return np.array(bits, f"u{type.bits // 8}").view(type.dtype)[()]
    if not type.is_complex and isinstance(value, complex):
        value = value.real
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(type.dtype)[()]


def convert(x: XlaOp, type: str | ElementType) -> XlaOp:
    """Return a tensor in an element type, as `Tensor.to`: true for what is not 0, the real part of a complex number."""
    wanted = element_type(type)
    if x.element_type == wanted:
        return x
    if wanted.is_pred:
        return sx.ne(x, zeros_like(x))
    if x.element_type.is_complex and not wanted.is_complex:
        return convert(sx.real(x), wanted)
    if x.element_type.is_float and wanted.is_integer and wanted.bits < 32:
        # As the processor's instruction does: by way of 32 bits, the upper ones cut off.
        return sx.convert_element_type(sx.convert_element_type(x, "s32"), wanted)
    return sx.convert_element_type(x, wanted)


def broadcast_sizes(*sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes that tensors of these sizes are broadcast to.

    >>> broadcast_sizes((3, 1), (4,), ())
    (3, 4)
    """
    return tuple(torch.broadcast_shapes(*map(tuple, sizes)))


def broadcast(x: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Return a tensor in larger sizes, its dimensions being the last ones; those of size 1 are repeated."""
    sizes, own = tuple(sizes), x.shape.dimensions
    if own == sizes:
        return x
    return sx.broadcast_in_dim(x, sizes, tuple(range(len(sizes) - len(own), len(sizes))))


def full_like(x: XlaOp, value: Number, dimensions: Sequence[int] | None = None) -> XlaOp:
    """Return a tensor of a tensor's type, and of its sizes or others, all of whose elements are this number."""
    scalar = x.builder.constant(_number(value, x.element_type))
    sizes = x.shape.dimensions if dimensions is None else tuple(dimensions)
    return sx.broadcast(scalar, sizes) if sizes else scalar


def constant_elements(x: XlaOp) -> np.ndarray | None:
    """Return the elements of a constant; None for other tensors."""
    return constant_array(*x.values)


def zeros_like(x: XlaOp) -> XlaOp:
    return full_like(x, 0)


def wide(x: XlaOp) -> XlaOp:
    """Return a tensor of halves in f32, in which PyTorch computes with them; any other as it is."""
    return sx.convert_element_type(x, "f32") if x.element_type.is_float and x.element_type.bits < 32 else x


def as_float(x: XlaOp) -> XlaOp:
    """Return integers and truth values in PyTorch's default type, f32; any other tensor as it is."""
    return x if x.element_type.is_float or x.element_type.is_complex else convert(x, default_float())


def default_float() -> ElementType:
    """Return PyTorch's default type of floats."""
    return xla_type(torch.get_default_dtype())


def bits(x: XlaOp) -> XlaOp:
    """Return floats as the signed integers of their bits."""
    return sx.bitcast_convert_type(x, f"s{x.element_type.bits}")


def polynomial(x: XlaOp, coefficients: Sequence[float]) -> XlaOp:
    """Return a polynomial's values by Horner's rule; the coefficient of the highest power is the first."""
    made = full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        made = sx.add(sx.mul(made, x), coefficient)
    return made


def place(dimension: int, rank: int) -> int:
    """Return a dimension counted from the front, where it may be negative; a 0-d tensor has one of size 1 for this."""
    return dimension % max(rank, 1)


def places(dimensions: int | Sequence[int] | None, rank: int, *, empty_is_all: bool = True) -> tuple[int, ...]:
    """Return dimensions counted from the front, in order; `None`, and mostly an empty list, are all of them."""
    if rank == 0:
        return ()
    if isinstance(dimensions, int):
        dimensions = (dimensions,)
    if dimensions is None or (not dimensions and empty_is_all):
        return tuple(range(rank))
    return tuple(sorted({place(d, rank) for d in dimensions}))


def reduced(
    x: XlaOp, init: Value, computation: Callable[[XlaOp, XlaOp], XlaOp], dimensions: Sequence[int], keep: bool = False
) -> XlaOp:
    """Return a tensor reduced over dimensions, which stay with size 1 where they are kept."""
    if not dimensions:
        return x
    start = init if isinstance(init, XlaOp) else full_like(x, init, ())
    made = sx.reduce(x, start, computation, tuple(dimensions))
    return kept(made, x.shape.dimensions, dimensions) if keep else made


def kept(x: XlaOp, sizes: Sequence[int], dimensions: Sequence[int]) -> XlaOp:
    """Return a reduced tensor with the dimensions that were reduced, of size 1.

    Args:
        x: the reduced tensor.
        sizes: of the tensor before.
        dimensions: those that were reduced.
    """
    return sx.reshape(x, tuple(1 if d in dimensions else size for d, size in enumerate(sizes)))


def total(x: XlaOp, dimensions: Sequence[int], keep: bool = False) -> XlaOp:
    """Return the sum over dimensions."""
    return reduced(x, 0, sx.add, dimensions, keep)


def running_sum(x: XlaOp) -> XlaOp:
    """Return the sums of an array's elements up to each one; it has one dimension."""
    (size,) = x.shape.dimensions
    return sx.reduce_window(x, full_like(x, 0, ()), sx.add, (size,), None, padding=[(size - 1, 0)]) if size else x


def unknown_size() -> UnsupportedError:
    """Return the error for a result, or its size, that only a tensor's numbers tell."""
    return UnsupportedError(
        "what it gives depends on a tensor's numbers, which are not known when the program is compiled",
        hint="torch.where in the place of a branch or a mask, x[:1] in the place of x[0].item()",
    )


def lowest(type: ElementType) -> Number:
    """Return the least number of an element type: minus infinity for floats."""
    if type.is_float:
        return float("-inf")
    return False if type.is_pred else int(np.iinfo(type.dtype).min)


def highest(type: ElementType) -> Number:
    """Return the largest number of an element type: infinity for floats."""
    if type.is_float:
        return float("inf")
    return True if type.is_pred else int(np.iinfo(type.dtype).max)


__all__ = [
    "Call",
    "Value",
    "as_float",
    "bits",
    "broadcast",
    "broadcast_sizes",
    "convert",
    "default_float",
    "full_like",
    "highest",
    "kept",
    "lowest",
    "place",
    "places",
    "polynomial",
    "reduced",
    "result_type",
    "running_sum",
    "torch_type",
    "total",
    "unknown_size",
    "wide",
    "xla_type",
    "zeros_like",
]
