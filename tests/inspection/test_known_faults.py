"""Freedoms of the specification and faults of oracles excuse what they explain, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stablexla.inspection.judging.known_faults import FAULTS
from stablexla.inspection.judging.tolerances import Case, differing


@dataclass(frozen=True)
class Statement:
    """What is known of an operation."""

    text: str
    operation: str
    operations: frozenset[str]


def left(text: str, operands: list[Any], actual: Any, wanted: Any, oracle: str = "interpreter") -> list[bool]:
    """Which elements differ and are not excused."""
    names = frozenset(word.partition(".")[2] for word in text.split() if word.startswith("stablehlo."))
    statement = Statement(text, text.partition("stablehlo.")[2].split()[0], names)
    case = Case(statement, [np.asarray(o) for o in operands], np.asarray(actual), np.asarray(wanted), oracle)
    wrong = differing(case)
    for fault in FAULTS:
        wrong = wrong & ~fault.explains(case, wrong)
    return [bool(w) for w in wrong]


def f32(*numbers: float) -> Any:
    return np.array(numbers, np.float32)


def i8(*numbers: int) -> Any:
    return np.array(numbers, np.int8)


def test_conversions_out_of_range() -> None:
    x = f32(np.nan, 300, -200, 5, 127.5)
    assert left("stablehlo.convert %x", [x], i8(1, 1, 1, 1, 1), i8(0, 0, 0, 0, 0)) == [False] * 3 + [True] * 2


def test_conversions_to_small_floats() -> None:
    type_ = ml_dtypes.float6_e2m3fn
    x = f32(-18, 9, 7, np.inf, np.nan)
    right, zeros = np.array([-7.5, 7.5, 7, 7.5, 1], type_), np.zeros(5, type_)
    assert left("stablehlo.convert %x", [x], right, zeros, "xla") == [False, False, True, False, False]
    assert left("stablehlo.convert %x", [x], -right, right, "xla") == [True] * 4 + [False]


def test_powers_of_one() -> None:
    operands, wanted = [f32(1, 1, 2), f32(np.nan, np.nan, np.nan)], f32(np.nan, np.nan, np.nan)
    assert left("stablehlo.power %x, %y", operands, f32(1, 2, 1), wanted, "xla") == [False, True, True]


def test_holes_of_dilation() -> None:
    text, operands = "stablehlo.convolution %x, %w lhs_dilate = [1, 2]", [f32(1, 1), f32(1, np.inf)]
    assert left(text, operands, f32(0, 0), f32(np.nan, 1)) == [False, True]
    assert left(text.replace("2", "1"), operands, f32(0, 0), f32(np.nan, 1)) == [True, True]


def test_slices_without_elements() -> None:
    text = "stablehlo.gather %x, slice_sizes = array<i64: 0, 1>"
    assert left(text, [f32(0, 1)], f32(0, 1), f32(0, 0), "xla") == [False, False]
    assert left(text, [f32(0, 1)], f32(0, 1), f32(0, 0)) == [False, True]
    assert left(text.replace("0, 1", "10, 1"), [f32(0, 1)], f32(0, 1), f32(0, 0), "xla") == [False, True]


def test_divisions_by_zero() -> None:
    operands = [i8(5, -128, -127, 9), i8(0, -1, -1, 3)]
    assert left("stablehlo.divide %x, %y", operands, i8(1, 1, 1, 1), i8(0, 0, 0, 0)) == [False, False, True, True]


def test_rounding_in_small_types() -> None:
    type_ = ml_dtypes.float8_e3m4
    x, right, nan = (np.array(v, type_) for v in ([0.5, 0.5], [1, 0], [np.nan, np.nan]))
    assert left("stablehlo.ceil %x", [x], right, nan) == [False, True]
    assert left("stablehlo.ceil %x", [x], right, nan, "xla") == [True, True]


@pytest.mark.parametrize(("start", "excused"), [(255, True), (127, False)])
def test_unsigned_indices(start: int, excused: bool) -> None:
    found = left("stablehlo.dynamic_slice %x, %i", [f32(1, 2), np.uint8(start)], f32(2), f32(1))
    assert found == [not excused]


def test_what_is_not_finite() -> None:
    """Of transforms the lines with such an operand, of sorts all, but of total orders none."""
    x = np.array([[1, np.inf], [1, 2]], np.complex64)
    found = left("stablehlo.fft %x, type = FFT, length = [2] :", [x], x + 8, x)
    assert found == [False, False, True, True]
    order = "stablehlo.sort %x ; stablehlo.compare LT, FLOAT"
    assert left(order, [f32(np.nan, 0)], f32(1, 0), f32(0, 1)) == [False, False]
    total = order.replace("FLOAT", "TOTALORDER")
    assert left(total, [f32(np.nan, 0)], f32(1, 0), f32(0, 1), "xla") == [True, True]
    assert left(total, [f32(np.nan, 0)], f32(1, 0), f32(0, 1)) == [False, False]  # the interpreter's order is none
    assert left(total, [f32(0, -0.0)], f32(1, 0), f32(0, 1)) == [False, False]
    assert left(total, [f32(0, 0)], f32(1, 0), f32(0, 1)) == [True, True]
    assert left(order, [f32(1, 0)], f32(1, 0), f32(0, 1)) == [True, True]
    assert left(f"stablehlo.while ; {order}", [f32(np.nan, 0)], f32(1, 0), f32(0, 1)) == [False, False]


def test_powers_of_integers() -> None:
    """Of exponents above 63 what Python's integers say."""
    x, y = np.uint16([17, 17, 17]), np.uint16([0x89A5, 0x89A5, 63])
    text = "stablehlo.power %x, %y"
    assert left(text, [x, y], np.uint16([37969, 5, 5]), np.uint16([15441] * 3), "xla") == [False, True, True]
    x, y = np.int16([-3]), np.int16([67])
    assert left(text, [x, y], np.int16([pow(-3, 67, 1 << 16)]), np.int16([1]), "xla") == [False]


def test_initial_values_of_several_combiners() -> None:
    """XLA forgets one that is no identity of the combiner that it is for; which that is the text does not tell."""
    text = "stablehlo.reduce ; stablehlo.maximum ; stablehlo.add"
    operands = [np.int64([-2]), np.int64([-2]), np.int64(0), np.int64(0)]
    assert left(text, operands, np.int64(0), np.int64(-2), "xla") == [False]
    assert left(text, operands, np.int64(0), np.int64(-2)) == [True]
    chosen = "stablehlo.reduce ; stablehlo.compare ; stablehlo.select"
    assert left(chosen, operands, np.int64([0]), np.int64([-2]), "xla") == [False]
    assert left(chosen, [np.int64([-2, -3]), *operands[1:]], np.int64(0), np.int64(-2), "xla") == [True]
    assert left(text.replace("maximum", "add"), operands, np.int64(0), np.int64(-2), "xla") == [True]


def test_rounded_operands_of_products() -> None:
    """Within the rounding of the operands, and no further."""
    text = "stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16> "
    text += ": (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>"
    x, y = np.full((1, 1), 1.003, np.float32), np.ones((1, 1), np.float32)
    for oracle in ("xla", "interpreter"):
        assert left(text, [x, y], y, x, oracle) == [False]
        assert left(text, [x, y], y, x + 1, oracle) == [True]


def test_products_that_overflow() -> None:
    text = "stablehlo.reduce ; stablehlo.multiply across"
    large = np.full(20, 1e3, np.float16)
    assert left(text, [large, np.float16(1)], np.float16(np.inf), np.float16(np.nan)) == [False]
    assert left(text, [large[:1], np.float16(1)], np.float16(2e4), np.float16(1e3)) == [True]


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3b11fnuz", "int2", "float6_e2m3fn"])
def test_every_type_is_judged(name: str) -> None:
    """Sums and products of small types, which numpy does not know the limits of."""
    type_ = np.dtype(getattr(ml_dtypes, name))
    x = np.ones(4).astype(type_)
    text = "stablehlo.reduce(%0 init: %1) applies stablehlo.add across dimensions = [0] : (tensor<4x"
    assert len(left(text.replace("reduce(", "reduce ("), [x, x[0]], x[0], (x + x)[0])) == 1
    assert len(left("stablehlo.multiply %x, %y", [x, x], x, x + x, "xla")) == 4
