"""Shapes as XLA has them: an array of an element type and dimensions, a tuple of shapes, or a token.

A shape is a plain value independent of MLIR objects; `mlir` is the spelling of its MLIR type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from operator import index
from typing import Any, NoReturn

from stablexla.dialects.attributes.arguments import integers, items, told
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.errors import ShapeError

_ARRAY = re.compile(r"\s*([a-z]\w*)\s*\[([\d\s,<=]*)\](?:\{[^}]*\})?\s*")
_BOUNDED = re.compile(r"\s*<=\s*(\d+)\s*")

DEEPEST = 100
"""How deep tuples may be nested: what looks at them goes down by recursion."""

# Inside the class, `tuple` is a method.
Dimensions = tuple[int, ...]
Shapes = tuple["Shape", ...]
Flags = tuple[bool, ...]
Spelled = tuple[int | str, ...]
_Reduced = tuple[object, ...]


class Shape:
    """The shape of a value: `Shape("f32", (2, 3))`, for short `sx.f32[2, 3]`; `sx.f32[()]` is a scalar.

    A dimension "<=8" is dynamic: its size is known only when the program runs, and 8 is its bound.

    Raises:
        ShapeError: no such element type, or a dimension that is no integer from 0 on, nor "<=" and one.

    >>> shape = Shape("f32", (2, 3))
    >>> print(shape, shape.rank, shape.size)
    f32[2,3] 2 6
    >>> print(Shape.tuple((shape, Shape("s32", ()))))
    (f32[2,3], s32[])
    >>> some = sx.f32["<=8", 3]
    >>> print(some, some.dimensions, some.is_dynamic_dimension(0), some.mlir)
    f32[<=8,3] (8, 3) True tensor<?x3xf32, #stablehlo.bounds<8, ?>>
    """

    __slots__ = ("_depth", "_dimensions", "_dynamic", "_element_type", "_hash", "_parts")

    _element_type: ElementType | None
    _dimensions: Dimensions
    _dynamic: Dimensions
    _parts: Shapes | None
    _depth: int
    _hash: int

    def __init__(self, element_type_: object, dimensions: Iterable[int | str] = ()) -> None:
        self._element_type = element_type(element_type_)
        self._dimensions, self._dynamic = _checked_dimensions(dimensions)
        self._parts, self._depth = None, 0
        self._hash = hash((self._element_type.name, self._dimensions, self._dynamic))

    @classmethod
    def tuple(cls, shapes: Iterable[Shape]) -> Shape:
        """The shape of a tuple of values of these shapes; tuples may hold tuples."""
        parts = tuple(items("shapes", shapes, "a sequence of shapes"))
        for part in parts:
            if not isinstance(part, Shape):
                raise ShapeError(f"a tuple's shape is made of shapes, not of {told(part)}")
        made = cls._make(parts, hash(parts))
        if made._depth > DEEPEST:
            raise ShapeError(f"tuples nested more than {DEEPEST} deep")
        return made

    @classmethod
    def token(cls) -> Shape:
        """The shape of a token, which orders operations that have effects."""
        return cls._make(None, hash("token"))

    @classmethod
    def _make(cls, parts: Shapes | None, hash_: int) -> Shape:
        self = object.__new__(cls)
        self._element_type, self._dimensions, self._dynamic = None, (), ()
        self._parts, self._hash = parts, hash_
        self._depth = 1 + max((part._depth for part in parts or ()), default=0)
        return self

    @classmethod
    def parse(cls, text: str) -> Shape:
        """The shape that `str` wrote as `text`. A layout, as in `f32[2,3]{1,0}`, is read over.

        >>> Shape.parse("(f32[2,3]{1,0}, (pred[], token))").leaf_count
        3
        """
        if not isinstance(text, str):
            raise ShapeError(f"text must be a text, not {told(text)}")
        try:
            shape, rest = _parse(text)
        except (RecursionError, ValueError):  # parentheses in parentheses, or thousands of digits
            raise ShapeError(f"{told(text)} is no shape that anything has") from None
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
        """The sizes of an array's dimensions, of dynamic ones the bounds; `()` for scalars, tuples and tokens."""
        return self._dimensions

    def __getitem__(self, index: object) -> NoReturn:
        raise ShapeError("a Shape has no items", operands={"shape": self}, hint=f"shape.dimensions[{told(index)}]")

    @property
    def dynamic_dimensions(self) -> Flags:
        """For each dimension of an array whether its size is known only when the program runs."""
        return tuple(place in self._dynamic for place in range(len(self._dimensions)))

    def is_dynamic_dimension(self, dimension: int) -> bool:
        """Whether the size of this dimension of an array is known only when the program runs."""
        return dimension in self._dynamic

    @property
    def is_static(self) -> bool:
        """No array in it has a dynamic dimension."""
        return not self._dynamic if self._parts is None else all(part.is_static for part in self._parts)

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self._dimensions)

    @property
    def size(self) -> int:
        """The number of elements that an array may have; 0 for tuples and tokens."""
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

    def leaf_at(self, path: Iterable[int]) -> int | None:
        """The index among `leaves` of the array or token at a path into the tuples; None where there is none.

        >>> Shape.parse("(s32[], (f32[2], token))").leaf_at((1, 0))
        1
        """
        shape, place = self, 0
        for step in path:
            if not 0 <= step < len(shape.tuple_shapes):
                return None
            place += sum(part.leaf_count for part in shape.tuple_shapes[:step])
            shape = shape.tuple_shapes[step]
        return None if shape.is_tuple else place

    def nested(self, leaves: Iterable[Any]) -> Any:
        """Values for the leaves, from left to right, as this shape's tuples hold them.

        >>> Shape.parse("(s32[], (f32[2], token))").nested("abc")
        ('a', ('b', 'c'))
        """
        rest = iter(leaves)

        def build(shape: Shape) -> Any:
            return tuple(build(part) for part in shape.tuple_shapes) if shape.is_tuple else next(rest)

        return build(self)

    def without_tokens(self) -> Shape:
        """The shape without the tokens in its tuples; a token itself is the empty tuple.

        >>> print(Shape.parse("(f32[2], (token, s32[]), token)").without_tokens())
        (f32[2], (s32[]))
        """
        if self._parts is not None:
            return Shape.tuple(part.without_tokens() for part in self._parts if not part.is_token)
        return Shape.tuple(()) if self.is_token else self

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
        sizes = "".join("?x" if i in self._dynamic else f"{n}x" for i, n in enumerate(self._dimensions))
        if not self._dynamic:
            return f"tensor<{sizes}{self._element_type.mlir}>"
        bounds = ", ".join(str(n) if i in self._dynamic else "?" for i, n in enumerate(self._dimensions))
        return f"tensor<{sizes}{self._element_type.mlir}, #stablehlo.bounds<{bounds}>>"

    def with_element_type(self, element_type_: object) -> Shape:
        """The array shape of the same dimensions and another element type."""
        return Shape(element_type_, self._spelled)

    def with_dimensions(self, dimensions: Iterable[int | str]) -> Shape:
        """The array shape of the same element type and other dimensions."""
        return Shape(self.element_type, dimensions)

    def with_dynamic(self, chosen: Iterable[int]) -> Shape:
        """The array shape of the same sizes in which these dimensions, and no others, are dynamic.

        >>> print(Shape("f32", (8, 3)).with_dynamic([0]))
        f32[<=8,3]
        """
        places = integers("chosen", list(chosen) if isinstance(chosen, Set | Mapping) else chosen)
        if not all(0 <= place < self.rank for place in places):
            raise ShapeError(f"chosen: {told(places)} are not all dimensions of {self}")
        return Shape(self.element_type, [f"<={n}" if i in places else n for i, n in enumerate(self._dimensions)])

    @property
    def _spelled(self) -> Spelled:
        """The dimensions as the constructor takes them."""
        return tuple(f"<={n}" if i in self._dynamic else n for i, n in enumerate(self._dimensions))

    def __iter__(self) -> Iterator[Shape]:
        """The shapes of a tuple's elements; an array's dimensions are not meant by it, and it raises `ShapeError`."""
        if self._parts is None:
            raise ShapeError(f"{self} is no tuple's shape, and holds no other shapes", hint="shape.dimensions")
        return iter(self._parts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Shape):
            return NotImplemented
        return (
            self._hash == other._hash
            and self._dimensions == other._dimensions
            and self._dynamic == other._dynamic
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
        return f"{self._element_type.name}[{','.join(map(str, self._spelled))}]"

    def __repr__(self) -> str:
        if self._parts is not None:
            inner = ", ".join(map(repr, self._parts)) + ("," if len(self._parts) == 1 else "")
            return f"Shape.tuple(({inner}))"
        if self._element_type is None:
            return "Shape.token()"
        return f"Shape({self._element_type.name!r}, {self._spelled!r})"

    def __reduce__(self) -> str | _Reduced:
        return Shape.parse, (str(self),)


def _checked_dimensions(dimensions: Iterable[int | str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes, and the positions of those that are bounds."""
    given = [dimensions] if isinstance(dimensions, str) else items("dimensions", dimensions, "a sequence of integers")
    bounded = tuple(place for place, size in enumerate(given) if isinstance(size, str))
    try:
        sizes = tuple(map(index, map(_bound, given) if bounded else given))
    except Exception:
        hint = '"<=8", where 8 is only a bound'
        if any(size is None for size in given):
            hint += "; a size without a bound, None, is left open in MLIR's text alone: tensor<?x3xf32>"
        raise ShapeError(f"dimensions must be a sequence of integers, not {told(dimensions)}", hint=hint) from None
    for position, size in enumerate(sizes):
        if size < 0:
            raise ShapeError(f"dimension {position} has the negative size {size}")
        if size >= 2**63:
            raise ShapeError(f"dimension {position} has the size {told(size)}, which takes more than 64 bits")
        if position in bounded and size >= 2**31:
            raise ShapeError(f"dimension {position} has the bound {size}, and sizes at run time are of 32 bits")
    return sizes, bounded


def _bound(size: int | str) -> int:
    """Parse the number in "<=8"; any other text is no size."""
    if not isinstance(size, str):
        return size
    found = _BOUNDED.fullmatch(size)
    if found is None:
        raise TypeError
    return int(found[1])


def _parse(text: str) -> tuple[Shape, str]:
    """Parse the shape at the start of `text`; return it and the rest of the text."""
    text = text.lstrip()
    if text.startswith("("):
        return _parse_tuple(text)
    if text.startswith("token"):
        return Shape.token(), text.removeprefix("token").removeprefix("[]")
    found = _ARRAY.match(text)
    if found is None:
        raise ShapeError(f"{text!r} is no shape", hint='"f32[2,3]", "pred[]", "token" or "(s32[], f32[4])"')
    sizes = [size for size in found[2].split(",") if size.strip()]
    return Shape(found[1], [size if "<" in size else int(size) for size in sizes]), text[found.end() :]


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
