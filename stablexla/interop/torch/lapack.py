"""Calls of LAPACK's routines, one for each matrix of a batch, as the compiler knows them from JAX."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.shapes import Shape
from stablexla.lowering.rules.calls.lapack_routines import LETTERS, TABLE, Array, Routine, arrays

_LETTER = dict(zip(("f32", "f64", "c64", "c128"), LETTERS, strict=True))
_COMPLEX = {"f32": "c64", "f64": "c128"}


def lapack(
    name: str, *operands: XlaOp, sizes: Mapping[str, int] | None = None, **attributes: str | bool
) -> list[XlaOp]:
    """Return the results of a routine for matrices in the last two dimensions.

    Args:
        name: without the letter of the element type, as in the table of routines: "getrf", or "syevd".
        operands: those of the table's row; the first one's element type is the routine's.
        sizes: those that do not follow from the operands.
        attributes: those of the row; letters as LAPACK has them.

    >>> b = sx.XlaBuilder("example")
    >>> factors, pivots, info = lapack("getrf", b.parameter(0, sx.f32[7, 4, 3]))
    >>> print(factors.shape, pivots.shape, info.shape)
    f32[7,4,3] s32[7,3] s32[7]
    """
    type_ = operands[0].element_type
    letter = _LETTER[type_.name]
    row = next(r for r in TABLE if name in r.name.split() and letter in r.elements)
    taken, given = arrays(row.operands), arrays(row.results)
    batch = operands[0].shape.dimensions[: operands[0].shape.rank - len(taken[0].sizes)]
    known = dict(sizes or {})
    for array, op in zip(taken, operands, strict=True):
        known.update(zip(array.sizes, op.shape.dimensions[len(batch) :], strict=True))
    known.update({size: rule(known) for size, rule in row.sizes.items()})
    shapes = [_shape(array, type_, batch, known) for array in given]
    if not prod(batch):  # there is no matrix
        return [_zeros(operands[0], shape) for shape in shapes]
    return _called(row, letter, operands, shapes, attributes)


def _called(
    row: Routine, letter: str, operands: tuple[XlaOp, ...], shapes: list[Shape], attributes: Mapping[str, str | bool]
) -> list[XlaOp]:
    shown = [_in_columns(shape, array) for shape, array in zip(shapes, arrays(row.results), strict=True)]
    made = sx.custom_call_with_layout(
        f"lapack_{row.name_for(letter)}_ffi",
        operands,
        shown[0] if len(shown) == 1 else f"({', '.join(shown)})",
        [_in_columns(op.shape, array) for op, array in zip(operands, arrays(row.operands), strict=True)],
        {name: ord(value) if isinstance(value, str) else value for name, value in attributes.items()},
        api_version="API_VERSION_TYPED_FFI",
    )
    return list(made) if made.shape.is_tuple else [made]


def _shape(array: Array, type_: ElementType, batch: tuple[int, ...], sizes: Mapping[str, int]) -> Shape:
    part = type_.part if type_.is_complex else type_
    kinds = {"": type_, "int": element_type("s32"), "real": part, "complex": element_type(_COMPLEX[part.name])}
    return Shape(kinds[array.kind], (*batch, *(_size(size, sizes) for size in array.sizes)))


def _size(name: str, sizes: Mapping[str, int]) -> int:
    return max(0, sizes["n"] - 1) if name == "n-1" else sizes[name]


def _in_columns(shape: Shape, array: Array) -> str:
    """Return the text of an array whose matrices are column-major."""
    order = list(range(shape.rank))[::-1]
    if len(array.sizes) == 2:
        order[:2] = order[1], order[0]
    return f"{shape}{{{','.join(map(str, order))}}}"


def _zeros(x: XlaOp, shape: Shape) -> XlaOp:
    return sx.broadcast(x.builder.constant(0, shape.element_type.name), shape.dimensions)
