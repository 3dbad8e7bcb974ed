"""XLA's element types: their names, the numpy dtypes that hold them, and how they are spelled in MLIR.

The builder makes shapes from them; the lowering queries their storage and value types.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from stablexla.dialects.shapes import Shape


class Kind(Enum):
    """Number kind of an element type."""

    PRED = "pred"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True)
class ElementType:
    """One of XLA's element types.

    Attributes:
        name: XLA's name (`f32`, `pred`, `s4` ...).
        mlir: its spelling in StableHLO (`f32`, `i1`, `i4`, `ui4`, `f8E4M3FN`, `complex<f32>` ...).
        kind: what an element is.
        bits: width of one element.
        dtype: the numpy dtype of host arrays (one byte or more an element).

    >>> element_type("bf16").bits, element_type(np.float32).name
    (16, 'f32')
    """

    name: str
    mlir: str
    kind: Kind
    bits: int
    dtype: np.dtype

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is Kind.COMPLEX

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned; pred is not an integer."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    @property
    def is_unsigned(self) -> bool:
        return self.kind is Kind.UNSIGNED

    @property
    def is_pred(self) -> bool:
        return self.kind is Kind.PRED

    @property
    def part(self) -> ElementType:
        """The type of a complex number's parts; any other type is its own part."""
        return {"c64": BY_NAME["f32"], "c128": BY_NAME["f64"]}.get(self.name, self)

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory; types of less than a byte take one."""
        return self.dtype.itemsize

    def __getitem__(self, dimensions: int | str | tuple[int | str, ...]) -> Shape:
        """The shape of an array of this type: `f32[2, 3]`, `f32["<=4"]`, `f32[()]` for a scalar."""
        from stablexla.dialects.shapes import Shape  # shapes are made of element types

        return Shape(self, dimensions if isinstance(dimensions, tuple) else (dimensions,))

    #: With `__getitem__` alone it would pass for a sequence without end.
    __iter__ = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"sx.{self.name}"


def _integers() -> list[ElementType]:
    rows = []
    for bits in (2, 4, 8, 16, 32, 64):
        for letter, kind, spelling in (("s", Kind.SIGNED, "i"), ("u", Kind.UNSIGNED, "ui")):
            small = {"s2": "int2", "s4": "int4", "u2": "uint2", "u4": "uint4"}.get(f"{letter}{bits}")
            name = {"s": "int", "u": "uint"}[letter] + str(bits)
            dtype = np.dtype(getattr(ml_dtypes, small)) if small else np.dtype(name)
            rows.append(ElementType(f"{letter}{bits}", f"{spelling}{bits}", kind, bits, dtype))
    return rows


def _floats() -> list[ElementType]:
    small = [
        ("f4e2m1fn", "f4E2M1FN", 4, "float4_e2m1fn"),
        ("f6e2m3fn", "f6E2M3FN", 6, "float6_e2m3fn"),
        ("f6e3m2fn", "f6E3M2FN", 6, "float6_e3m2fn"),
        ("f8e3m4", "f8E3M4", 8, "float8_e3m4"),
        ("f8e4m3", "f8E4M3", 8, "float8_e4m3"),
        ("f8e4m3fn", "f8E4M3FN", 8, "float8_e4m3fn"),
        ("f8e4m3fnuz", "f8E4M3FNUZ", 8, "float8_e4m3fnuz"),
        ("f8e4m3b11fnuz", "f8E4M3B11FNUZ", 8, "float8_e4m3b11fnuz"),
        ("f8e5m2", "f8E5M2", 8, "float8_e5m2"),
        ("f8e5m2fnuz", "f8E5M2FNUZ", 8, "float8_e5m2fnuz"),
        ("f8e8m0fnu", "f8E8M0FNU", 8, "float8_e8m0fnu"),
        ("bf16", "bf16", 16, "bfloat16"),
    ]
    rows = [ElementType(n, m, Kind.FLOAT, b, np.dtype(getattr(ml_dtypes, d))) for n, m, b, d in small]
    rows += [ElementType(f"f{b}", f"f{b}", Kind.FLOAT, b, np.dtype(f"float{b}")) for b in (16, 32, 64)]
    return rows


ELEMENT_TYPES: tuple[ElementType, ...] = (
    ElementType("pred", "i1", Kind.PRED, 1, np.dtype(bool)),
    *_integers(),
    *_floats(),
    ElementType("c64", "complex<f32>", Kind.COMPLEX, 64, np.dtype("complex64")),
    ElementType("c128", "complex<f64>", Kind.COMPLEX, 128, np.dtype("complex128")),
)
BY_NAME: dict[str, ElementType] = {t.name: t for t in ELEMENT_TYPES}
BY_MLIR: dict[str, ElementType] = {t.mlir: t for t in ELEMENT_TYPES}
BY_DTYPE: dict[np.dtype, ElementType] = {t.dtype: t for t in ELEMENT_TYPES}
FINITE_ONLY = {"f4e2m1fn": 6.0, "f6e2m3fn": 7.5, "f6e3m2fn": 28.0}
"""Floats without infinities and NaN, by name, with their largest numbers."""


_BY_NUMPYS_NAME: dict[str, ElementType] = {t.dtype.name: t for t in ELEMENT_TYPES}
_BY_CLASS: dict[type, ElementType] = {t.dtype.type: t for t in ELEMENT_TYPES} | {bool: BY_NAME["pred"]}


def element_type(what: object) -> ElementType:
    """The element type that `what` names: an `ElementType`, XLA's or numpy's name, a numpy dtype or scalar class.

    numpy's codes, such as "f8", are none: they count bytes where XLA's names count bits. Nor are None and Python's
    numbers, whose width is not the same everywhere.

    Raises:
        ShapeError: nothing of that name.

    >>> element_type("f16"), element_type("float16"), element_type(np.float16)
    (sx.f16, sx.f16, sx.f16)
    """
    found = what if isinstance(what, ElementType) else _named(what)
    if found is None:
        raise ShapeError(f"{told(what)} is no element type", hint=_hint(what))
    return found


def _named(what: object) -> ElementType | None:
    if isinstance(what, str):
        return BY_NAME.get(what) or _BY_NUMPYS_NAME.get(what)
    if isinstance(what, type):
        what = _BY_CLASS.get(what) or getattr(what, "dtype", None)  # JAX's scalar classes have a dtype
    return BY_DTYPE.get(what) if isinstance(what, np.dtype) else what if isinstance(what, ElementType) else None


def _hint(what: object) -> str:
    """The hint of the error: the element type that numpy reads it as, or the list of all element types."""
    is_code = isinstance(what, str) and re.fullmatch("[<=>|]?[a-z][0-9]*", what)
    if is_code or what is int or what is float or what is complex:
        try:
            return f"sx.{BY_DTYPE[np.dtype(what)]}"  # type: ignore[call-overload]  # any text may be offered
        except (KeyError, TypeError):
            pass
    return f"one of {', '.join(BY_NAME)}"
