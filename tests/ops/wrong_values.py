"""Values that a careless caller passes: each with the annotations of parameters for which it may be legal.

An annotation is matched as it is spelled in a signature, such as `Sequence[int] | None`.
"""

from __future__ import annotations

import decimal
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

import stablexla as sx

NEVER = r"(?!)"
TEXT = r"\bstr\b|Padding|Precision|Literal|FftType|Transpose"
INTEGER = r"(^|\| )int\b|\bfloat\b|Operand\b|InitValues"
NUMBER = r"(^|\| )float\b|Operand\b|InitValues"
SEQUENCE = r"Sequence|Iterable|Operands|Packed|Pairs|Groups|Padding|Precision|InitValues|Sizes|Aliasing|tuple\["
OPERAND = r"XlaOp|Operand|InitValues|Packed"
ANYTHING = r"\bobject\b|\bAny\b"


class Hostile:
    """Whatever is asked of it, it raises."""

    def _raise(self, *_: object) -> NoReturn:
        raise RuntimeError("hostile")

    __index__ = __iter__ = __len__ = __getitem__ = __repr__ = __eq__ = __float__ = __bool__ = _raise  # type: ignore[assignment]
    __hash__ = object.__hash__


class Endless:
    """A sequence by the old protocol, with an item at every place."""

    def __getitem__(self, place: int) -> int:
        return 0


@dataclass(frozen=True)
class Wrong:
    """One kind of value.

    Attributes:
        name: for the report.
        make: the value, made of an op of the builder that is called.
        legal: matches the annotations for which it may be legal.
    """

    name: str
    make: Callable[[sx.XlaOp], Any]
    legal: str = NEVER

    def may_be_legal(self, annotation: str) -> bool:
        return re.search(f"{self.legal}|{ANYTHING}", annotation) is not None


def _elsewhere(shape: sx.Shape) -> sx.XlaOp:
    return sx.XlaBuilder("elsewhere").parameter(0, shape)


def _computation(*shapes: sx.Shape) -> sx.XlaComputation:
    b = sx.XlaBuilder("of other types")
    return b.build(sx.tuple([b.parameter(number, shape) for number, shape in enumerate(shapes)]))


def _constant(value: object) -> Callable[[sx.XlaOp], object]:
    return lambda _: value


WRONG: tuple[Wrong, ...] = (
    Wrong("None", _constant(None), "None"),
    Wrong("True", _constant(True), f"bool|{INTEGER}"),
    Wrong("negative", _constant(-1), INTEGER),
    Wrong("five", _constant(5), INTEGER),
    Wrong("of 33 bits", _constant(2**33), INTEGER),
    Wrong("of 71 bits", _constant(2**70), NUMBER),
    Wrong("numpy integer", lambda _: np.int64(1), INTEGER),
    Wrong("float", _constant(1.5), NUMBER),
    Wrong("NaN", _constant(float("nan")), NUMBER),
    Wrong("complex", _constant(1j), "Operand|InitValues"),
    Wrong("decimal", lambda _: decimal.Decimal(1)),
    Wrong("empty text", _constant(""), TEXT),
    Wrong("text", _constant("nonsense"), TEXT),
    Wrong("numpy's code", _constant("f8"), r"(^|: )str$|str \| Mapping"),
    Wrong("text with a null", _constant("a\0b"), TEXT),
    Wrong("half a surrogate pair", _constant("\udc80"), NEVER),
    Wrong("bytes", _constant(b"\x01\x00")),
    Wrong("element type", _constant(sx.f32), "ElementType"),
    Wrong("Python's float", _constant(float), NEVER),
    Wrong("numpy type", _constant(np.float32), "ElementType"),
    Wrong("shape", _constant(sx.f32[2, 3]), "Shape|Sizes"),
    Wrong("huge shape", _constant(sx.f32[2**40, 2**40]), "Shape|Sizes"),
    Wrong("dynamic shape", _constant(sx.f32["<=2", 3]), "Shape"),
    Wrong("tuple's shape", _constant(sx.Shape.tuple((sx.f32[2], sx.Shape.tuple(())))), "Shape"),
    Wrong("token's shape", _constant(sx.Shape.token()), "Shape"),
    Wrong("empty tuple", _constant(()), SEQUENCE),
    Wrong("list of integers", _constant([0, 1]), SEQUENCE),
    Wrong("list of large integers", _constant([2**70]), "InitValues"),
    Wrong("list of floats", _constant([0.5, 1.5]), "InitValues"),
    Wrong("list of texts", _constant(["FFT"]), "Precision"),
    Wrong("list of lists of texts", _constant([["a"]])),
    Wrong("list of None", _constant([None, None])),
    Wrong("pairs", _constant([(0, 1), (1, 0)]), r"Pairs|Groups|Padding|tuple\[int, int\]"),
    Wrong("triples", _constant([(0, 0, 0), (0, 0, 0)]), r"PaddingConfig|Groups|int, int, int"),
    Wrong("set", _constant({0, 1}), r"^Iterable.int.$"),
    Wrong("mapping", _constant({"a": 1}), "Mapping"),
    Wrong("mapping of arrays", lambda _: {"a": np.ones(3)}),
    Wrong("mapping of numbers", _constant({1: 2}), r"^Iterable.int.$"),
    Wrong("integer array", lambda _: np.arange(2), SEQUENCE),
    Wrong("float array", lambda _: np.ones((2, 3), np.float32)),
    Wrong("array of objects", lambda _: np.array([None, object()])),
    Wrong("array of no dimensions", lambda _: np.array(1), INTEGER),
    Wrong("endless iterator", lambda _: itertools.count()),
    Wrong("endless sequence", lambda _: Endless()),
    Wrong("long range", _constant(range(10**12))),
    Wrong("generator", lambda _: (n for n in (0, 1)), SEQUENCE),
    Wrong("object", lambda _: object()),
    Wrong("hostile object", lambda _: Hostile()),
    Wrong("builtin function", _constant(len)),
    Wrong("function of nothing", _constant(lambda: None), NEVER),
    Wrong("function that returns its argument", _constant(lambda x: x), "Computation"),
    Wrong("function that returns None", _constant(lambda *_: None)),
    Wrong("computation", lambda _: _computation(sx.f32[3], sx.s32[()]), r"^XlaComputation$"),
    Wrong("class", _constant(int)),
    Wrong("builder", lambda x: x.builder),
    Wrong("dimension numbers", _constant(sx.DotDimensionNumbers((0,), (0,))), "DotDimensionNumbers"),
    Wrong("slice", _constant(slice(0, 1))),
    Wrong("op of pred", lambda x: x.builder.constant([True, False]), OPERAND),
    Wrong("scalar op", lambda x: x.builder.constant(1), OPERAND),
    Wrong("complex op", lambda x: x.builder.constant([[1j]]), OPERAND),
    Wrong("token", lambda x: x.builder.create_token(), OPERAND),
    Wrong("tuple op", lambda x: sx.tuple((x.builder.constant(1), x.builder.empty_tuple())), OPERAND),
    Wrong(
        "list of ops", lambda x: [x.builder.constant(1), x.builder.constant([2.0])], "Operands|Sequence.XlaOp|Packed"
    ),
    Wrong("op of another builder", lambda _: _elsewhere(sx.f32[2]), OPERAND),
)
