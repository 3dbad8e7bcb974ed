"""Shapes as XLA has them: an array of an element type and dimensions, a tuple of shapes, or a token.

A shape is a plain value that knows nothing of MLIR objects; `mlir` is the spelling of the type that stands for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from operator import index

from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.errors import ShapeError

_ARRAY = re.compile(r"\s*([a-z]\w*)\s*\[([\d\s,]*)\](?:\{[^}]*\})?\s*")

# Inside the class, `tuple` is a method.
Dimensions = tuple[int, ...]
Shapes = tuple["Shape", ...]
_Reduced = tuple[object, ...]


class Shape:
    """The shape of a value: `Shape("f32", (2, 3))`, for short `sx.f32[2, 3]`; `sx.f32[()]` is a scalar.

    Raises:
        ShapeError: no such element type, or a dimension that is no integer from 0 on.

    >>> shape = Shape("f32", (2, 3))
    >>> print(shape, shape.rank, shape.size)
    f32[2,3] 2 6
    >>> print(Shape.tuple((shape, Shape("s32", ()))))
    (f32[2,3], s32[])
    """

    __slots__ = ("_dimensions", "_element_type", "_hash", "_parts")

    _element_type: ElementType | None
    _dimensions: Dimensions
    _parts: Shapes | None
    _hash: int

    def __init__(self, element_type_: object, dimensions: Iterable[int] = ()) -> None:
        self._element_type = element_type(element_type_)
        self._dimensions = _checked_dimensions(dimensions)
        self._parts = None
        self._hash = hash((self._element_type.name, self._dimensions))

    @classmethod
    def tuple(cls, shapes: Iterable[Shape]) -> Shape:
        """The shape of a tuple of values of these shapes; tuples may hold tuples."""
        parts = tuple(shapes)
        for part in parts:
            if not isinstance(part, Shape):
                raise ShapeError(f"a tuple's shape is made of shapes, not of {part!r}")
        return cls._make(parts, hash(parts))

    @classmethod
    def token(cls) -> Shape:
        """The shape of a token, which orders operations that have effects."""
        return cls._make(None, hash("token"))

    @classmethod
    def _make(cls, parts: Shapes | None, hash_: int) -> Shape:
        self = object.__new__(cls)
        self._element_type, self._dimensions, self._parts, self._hash = None, (), parts, hash_
        return self

    @classmethod
    def parse(cls, text: str) -> Shape:
        """The shape that `str` wrote as `text`. A layout, as in `f32[2,3]{1,0}`, is read over.

        >>> Shape.parse("(f32[2,3]{1,0}, (pred[], token))").leaf_count
        3
        """
        shape, rest = _parse(text)
        if rest.strip():
            raise ShapeError(f"{text!r} is no shape: {rest.strip()!r} follows it")
        return shape

    @property
    def element_type(self) -> ElementType:
        """The type of an array's elements; a tuple or a token has none and raises `ShapeError`."""
        if self._element_type is None:
            raise ShapeError(f"a {'tuple' if self.is_tuple else 'token'} has no element type")
        return self._element_type

    @property
    def dimensions(self) -> Dimensions:
        """The sizes of an array's dimensions; `()` for scalars, tuples and tokens."""
        return self._dimensions

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._dimensions)

    @property
    def size(self) -> int:
        """The number of elements of an array; 0 for tuples and tokens."""
        return math.prod(self._dimensions) if self._element_type is not None else 0

    @property
    def is_array(self) -> bool:
        """An array, scalars included."""
        return self._element_type is not None

    @property
    def is_scalar(self) -> bool:
        """An array of rank 0."""
        return self._element_type is not None and not self._dimensions

    @property
    def is_tuple(self) -> bool:
        """A tuple of shapes, which may be empty."""
        return self._parts is not None

    @property
    def is_token(self) -> bool:
        """A token."""
        return self._element_type is None and self._parts is None

    @property
    def tuple_shapes(self) -> Shapes:
        """The shapes of a tuple's elements; `()` for anything else."""
        return self._parts or ()

    @property
    def leaves(self) -> Shapes:
        """The arrays and tokens in it from left to right, those of inner tuples in their place."""
        if self._parts is None:
            return (self,)
        return tuple(leaf for part in self._parts for leaf in part.leaves)

    @property
    def leaf_count(self) -> int:
        """The number of `leaves`."""
        return 1 if self._parts is None else sum(part.leaf_count for part in self._parts)

    @property
    def mlir(self) -> str:
        """The type's spelling in StableHLO.

        >>> Shape("u8", (4,)).mlir
        'tensor<4xui8>'
        """
        if self._parts is not None:
            return f"tuple<{', '.join(part.mlir for part in self._parts)}>"
        if self._element_type is None:
            return "!stablehlo.token"
        return f"tensor<{''.join(f'{size}x' for size in self._dimensions)}{self._element_type.mlir}>"

    def with_element_type(self, element_type_: object) -> Shape:
        """The array shape of the same dimensions and another element type."""
        return Shape(element_type_, self._dimensions)

    def with_dimensions(self, dimensions: Iterable[int]) -> Shape:
        """The array shape of the same element type and other dimensions."""
        return Shape(self.element_type, dimensions)

    def __iter__(self) -> Iterator[Shape]:
        return iter(self.tuple_shapes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shape):
            return NotImplemented
        return (
            self._hash == other._hash
            and self._dimensions == other._dimensions
            and self._element_type is other._element_type
            and self._parts == other._parts
        )

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self._parts is not None:
            return f"({', '.join(map(str, self._parts))})"
        if self._element_type is None:
            return "token"
        return f"{self._element_type.name}[{','.join(map(str, self._dimensions))}]"

    def __repr__(self) -> str:
        if self._parts is not None:
            inner = ", ".join(map(repr, self._parts)) + ("," if len(self._parts) == 1 else "")
            return f"Shape.tuple(({inner}))"
        if self._element_type is None:
            return "Shape.token()"
        return f"Shape({self._element_type.name!r}, {self._dimensions!r})"

    def __reduce__(self) -> str | _Reduced:
        return Shape.parse, (str(self),)


def _checked_dimensions(dimensions: Iterable[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(map(index, dimensions))
    except TypeError:
        raise ShapeError(f"dimensions are a sequence of integers, not {dimensions!r}") from None
    for position, size in enumerate(sizes):
        if size < 0:
            raise ShapeError(f"dimension {position} has the negative size {size}")
        if size >= 2**63:
            raise ShapeError(f"dimension {position} has the size {size}, which takes more than 64 bits")
    return sizes


def _parse(text: str) -> tuple[Shape, str]:
    """The shape that stands first in `text`, and what is left."""
    text = text.lstrip()
    if text.startswith("("):
        return _parse_tuple(text)
    if text.startswith("token"):
        return Shape.token(), text.removeprefix("token").removeprefix("[]")
    found = _ARRAY.match(text)
    if found is None:
        raise ShapeError(f"{text!r} is no shape", hint='"f32[2,3]", "pred[]", "token" or "(s32[], f32[4])"')
    sizes = [size for size in found[2].split(",") if size.strip()]
    return Shape(found[1], map(int, sizes)), text[found.end() :]


def _parse_tuple(text: str) -> tuple[Shape, str]:
    parts: list[Shape] = []
    rest = text[1:].lstrip()
    while not rest.startswith(")"):
        part, rest = _parse(rest)
        parts.append(part)
        rest = rest.lstrip()
        if rest.startswith(","):
            rest = rest[1:].lstrip()
        elif not rest.startswith(")"):
            raise ShapeError(f"{text!r} is no shape: a parenthesis is not closed")
    return Shape.tuple(parts), rest[1:]
