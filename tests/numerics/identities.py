"""Identities of arithmetic that the compiler uses, and those of real numbers that it may not use: where they hold.

`test_identities.py` runs each of them; `python -m benchmarks.numerics --identities` makes their table in
docs/numerics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

import stablexla as sx

Array = np.ndarray[Any, np.dtype[Any]]
Program = Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]
Reference = Callable[[Array, Array], Array | tuple[Array, ...]]

FLOATS, INTEGERS, COMPLEX = ("f32", "f64", "bf16", "f16"), ("s32", "u8"), ("c64",)
ALL, WHOLE, NEVER = "all floats", "integers alone", "real numbers alone"
RULES, CONTRACTION = "lowering/rules/elementwise.py", "lowering/rules/contraction.py"
FOLDERS = "MLIR's canonicalizer, LLVM"
NOBODY = "-"


@dataclass(frozen=True)
class Identity:
    """An identity, and a program that would show it.

    Attributes:
        written: the identity.
        where: the file that applies it, or who does; NOBODY where it is not applied to floats.
        holds: the numbers for which both sides are the same.
        program: a function of two arrays of all pairs of special values.
        reference: what the program means, as it is written, in numpy, on arrays of the type that is computed in;
            several results where a fused multiply-add may round once.
        types: the element types.
        rounds: whether functions are off by a few units in the last place.
    """

    written: str
    where: str
    holds: str
    program: Program
    reference: Reference
    types: Sequence[str] = FLOATS
    rounds: bool = False


def special_numbers(name: str) -> tuple[Array, Array]:
    """All pairs of zeros, infinities, NaN, the smallest, the largest and ordinary numbers of a type; as parts too."""
    if name in COMPLEX:
        x, y = special_numbers("f32")
        made = np.stack([x, y], axis=-1).view(np.complex64).ravel()
        return made, made[::-1].copy()
    dtype = sx.Shape(name, ()).element_type.dtype
    if name in INTEGERS:
        info = np.iinfo(dtype)
        values = np.array(
            [0, 1, 2, 3, 7, 100, info.max, info.max - 1, info.min, *([-1, -2, -7] * (info.min < 0))], dtype
        )
    else:
        limits = ml_dtypes.finfo(dtype)
        edges = [float(limits.smallest_subnormal), float(limits.tiny), float(limits.max), float(limits.eps)]
        positive = [0.0, np.inf, *edges, 1.0, 3.0, 0.1, 1.5]
        values = np.array([*positive, *(-x for x in positive), np.nan], dtype)
    x, y = (v.ravel() for v in np.meshgrid(values, values, indexing="ij"))
    return x, y


# ---- programs ------------------------------------------------------------------------------------------------------


def number(x: sx.XlaOp, value: float) -> sx.XlaOp:
    """The array of x's shape whose elements are a constant."""
    made = x.builder.constant(np.array(value, x.shape.element_type.dtype))
    return sx.broadcast_in_dim(made, x.shape.dimensions, ())


def _pairs(x: sx.XlaOp) -> sx.XlaOp:
    """x, and x backwards: two numbers for each place, which a product adds up."""
    both = [sx.reshape(v, (1, *v.shape.dimensions)) for v in (x, sx.rev(x, (0,)))]
    return sx.concat_in_dim(both, 0)


def _scaled_sum(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    """x times each of two numbers, added up, for each place."""
    repeated = sx.broadcast_in_dim(x, (2, *x.shape.dimensions), (1,))
    numbers = sx.DotDimensionNumbers((0,), (0,), (1,), (1,))
    return sx.dot_general(repeated, _pairs(y), numbers)


def _scaled_by_one(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    """The first number times each of two numbers, added up, for each place."""
    first = sx.reshape(sx.slice(x, (40,), (41,), (1,)), ())
    return sx.dot(sx.broadcast_in_dim(first, (2,), ()), _pairs(y))


def _fused(x: Array, y: Array, total: Array) -> Array:
    """x * y + total, rounded once."""
    if x.dtype == np.float32:
        return (x.astype(np.float64) * y + total).astype(np.float32)
    made = np.where(np.isfinite(x) & np.isfinite(y) & np.isinf(total), total, x * y + total)
    for i in np.flatnonzero(np.isfinite(x) & np.isfinite(y) & np.isfinite(total)):
        exact = Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(total[i]))
        if exact:
            made[i] = _rounded(exact)
    return made


def _rounded(exact: Fraction) -> float:
    """The f64 next to a number other than 0."""
    sign = 1.0 if exact > 0 else -1.0
    try:
        return math.copysign(float(exact), sign)
    except OverflowError:
        return math.copysign(math.inf, sign)


def _sums_of(x: Array, y: Array) -> tuple[Array, ...]:
    """0 + x y + x y', where y' is y backwards, in every order, each product rounded or not."""
    back = y[::-1]
    if x.dtype.kind != "f":
        return (x * y + x * back,)
    return 0 + x * y + x * back, 0 + _fused(x, back, x * y), 0 + _fused(x, y, x * back)


def _product(x: Array, y: Array) -> Array:
    """The textbook product of complex numbers."""
    re, im = x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
    return np.stack([re, im], axis=-1).view(x.dtype)[..., 0]


def _mean(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    added = sx.dot_general(_pairs(y), number(_pairs(x), 1.0), sx.DotDimensionNumbers((0,), (0,), (1,), (1,)))
    return added / number(x, 3.0)


def _max(x: Array, y: Array) -> Array:
    """IEEE 754's maximum: NaN wins, and 0 is more than -0."""
    chosen = np.where((x > y) | ((x == y) & ~np.signbit(x)), x, y)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, chosen).astype(x.dtype)


def _min(x: Array, y: Array) -> Array:
    return -_max(-x, -y)


def _chosen(condition: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    """1 and 0 in x's type."""
    return sx.select(condition, number(x, 1), number(x, 0))


def _bits(condition: Array, x: Array) -> Array:
    return condition.astype(x.dtype)


IDENTITIES = (
    # ---- that are applied, and hold for all floats
    Identity("x + -0 = x", RULES, ALL, lambda x, y: x + number(x, -0.0), lambda x, y: x + x.dtype.type(-0.0)),
    Identity("x - 0 = x", RULES, ALL, lambda x, y: x - number(x, 0.0), lambda x, y: x - 0),
    Identity("x * 1 = x", RULES, ALL, lambda x, y: x * number(x, 1.0), lambda x, y: x * 1),
    Identity("x / 1 = x", RULES, ALL, lambda x, y: x / number(x, 1.0), lambda x, y: x / 1),
    Identity("x ** 1 = x", RULES, ALL, lambda x, y: sx.pow(x, number(x, 1.0)), lambda x, y: x),
    Identity("max(x, -inf) = x", RULES, ALL, lambda x, y: sx.max(x, number(x, -np.inf)), lambda x, y: x),
    Identity("min(x, inf) = x", RULES, ALL, lambda x, y: sx.min(x, number(x, np.inf)), lambda x, y: x),
    Identity("x y = y x", "lowering/support/generic.py", ALL, lambda x, y: y * x, lambda x, y: x * y),
    Identity("-(-x) = x", FOLDERS, ALL, lambda x, y: sx.neg(sx.neg(x)), lambda x, y: x),
    Identity("-0 - x = -x", FOLDERS, ALL, lambda x, y: number(x, -0.0) - x, lambda x, y: -x),
    Identity("x + (-y) = x - y", FOLDERS, ALL, lambda x, y: x + (-y), lambda x, y: x - y),
    Identity("(-x) (-y) = x y", FOLDERS, ALL, lambda x, y: (-x) * (-y), lambda x, y: x * y),
    Identity("x * -1 = -x", FOLDERS, ALL, lambda x, y: x * number(x, -1.0), lambda x, y: -x),
    Identity("x * 2 = x + x", FOLDERS, ALL, lambda x, y: x * number(x, 2.0), lambda x, y: x + x),
    Identity("x / 2^n = x * 2^-n", FOLDERS, ALL, lambda x, y: x / number(x, 4.0), lambda x, y: x / 4),
    Identity("|-x| = |x|", FOLDERS, ALL, lambda x, y: sx.abs(-x), lambda x, y: abs(x)),
    Identity("max(x, x) = x", FOLDERS, ALL, lambda x, y: sx.max(x, x), lambda x, y: x),
    Identity(
        "not x = y: x != y", FOLDERS, ALL, lambda x, y: _chosen(sx.not_(sx.eq(x, y)), x), lambda x, y: _bits(x != y, x)
    ),
    Identity(
        "narrow(wide(x)) = x",
        FOLDERS,
        ALL,
        lambda x, y: sx.convert_element_type(sx.convert_element_type(x, "f64"), x.shape.element_type),
        lambda x, y: x,
    ),
    Identity(
        "x ** n is a product",
        "lowering/math/power.py",
        ALL,
        lambda x, y: sx.pow(x, number(x, 2.0)),
        lambda x, y: x * x,
        rounds=True,
    ),
    Identity(
        "max(x, y) = max(y, x), 0 above -0, NaN above all",
        "lowering/support/scalars.py",
        ALL,
        lambda x, y: sx.max(x, y),
        _max,
    ),
    Identity("min(x, y) = min(y, x), and so on", "lowering/support/scalars.py", ALL, lambda x, y: sx.min(x, y), _min),
    Identity(
        "s + x y, rounded once, in sums of products",
        "targets/codegen/emission.py",
        "all floats; fewer overflows",
        _scaled_sum,
        _sums_of,
        ("f32", "f64"),
    ),
    # ---- of integers, which wrap around
    Identity("x y + x z = x (y + z)", CONTRACTION, WHOLE, _scaled_sum, _sums_of, INTEGERS),
    Identity("x + 0 = x", RULES, WHOLE, lambda x, y: x + number(x, 0), lambda x, y: x, INTEGERS),
    Identity(
        "x & -1 = x, x | 0 = x", RULES, WHOLE, lambda x, y: (x & ~number(x, 0)) | number(x, 0), lambda x, y: x, INTEGERS
    ),
    Identity("x << 0 = x", RULES, WHOLE, lambda x, y: sx.shift_left(x, number(x, 0)), lambda x, y: x, INTEGERS),
    Identity("x * 2^n = x << n", FOLDERS, WHOLE, lambda x, y: x * number(x, 8), lambda x, y: x * 8, INTEGERS),
    Identity("x - x = 0", FOLDERS, WHOLE, lambda x, y: x - x, lambda x, y: x * 0, INTEGERS),
    Identity("x * 0 = 0", FOLDERS, WHOLE, lambda x, y: x * number(x, 0), lambda x, y: x * 0, INTEGERS),
    Identity("(x + y) - y = x", FOLDERS, WHOLE, lambda x, y: (x + y) - y, lambda x, y: x, INTEGERS),
    Identity(
        "(x + 1) + 1 = x + 2",
        FOLDERS,
        WHOLE,
        lambda x, y: (x + number(x, 1)) + number(x, 1),
        lambda x, y: x + 2,
        INTEGERS,
    ),
    # ---- of real numbers, that are not applied to floats
    Identity("x y + x z = x (y + z)", NOBODY, NEVER, _scaled_sum, _sums_of, ("f32", "f64")),
    Identity(
        "x y + x z = x (y + z), one x for all",
        NOBODY,
        NEVER,
        _scaled_by_one,
        lambda x, y: _sums_of(np.full_like(y, x[40]), y),
        ("f32", "f64"),
    ),
    Identity(
        "(x + y) / 3 = (x + y) * (1 / 3)", NOBODY, NEVER, _mean, lambda x, y: (0 + y + y[::-1]) / 3, ("f32", "f64")
    ),
    Identity("x + 0 = x", NOBODY, "all but -0", lambda x, y: x + number(x, 0.0), lambda x, y: x + 0),
    Identity("0 - x = -x", NOBODY, "all but 0", lambda x, y: number(x, 0.0) - x, lambda x, y: 0 - x),
    Identity("-(x - y) = y - x", NOBODY, "all but x = y", lambda x, y: -(x - y), lambda x, y: -(x - y)),
    Identity("x - x = 0", NOBODY, "finite numbers", lambda x, y: x - x, lambda x, y: x - x),
    Identity("x * 0 = 0", NOBODY, "finite numbers without a sign", lambda x, y: x * number(x, 0.0), lambda x, y: x * 0),
    Identity("x / x = 1", NOBODY, "finite numbers but 0", lambda x, y: x / x, lambda x, y: x / x),
    Identity("x == x", NOBODY, "all but NaN", lambda x, y: _chosen(sx.eq(x, x), x), lambda x, y: _bits(x == x, x)),
    Identity(
        "not x < y: x >= y",
        NOBODY,
        "all but NaN",
        lambda x, y: _chosen(sx.not_(sx.lt(x, y)), x),
        lambda x, y: _bits(~(x < y), x),
    ),
    Identity(
        "x < y ? x : y = min(x, y)",
        NOBODY,
        "all but NaN and zeros",
        lambda x, y: sx.select(sx.lt(x, y), x, y),
        lambda x, y: np.where(x < y, x, y),
    ),
    Identity("(x + y) - y = x", NOBODY, NEVER, lambda x, y: (x + y) - y, lambda x, y: (x + y) - y, ("f32", "f64")),
    Identity("(x y) / y = x", NOBODY, NEVER, lambda x, y: x * y / y, lambda x, y: x * y / y, ("f32", "f64")),
    Identity(
        "(x * 3) * 3 = x * 9",
        NOBODY,
        NEVER,
        lambda x, y: x * number(x, 3.0) * number(x, 3.0),
        lambda x, y: x * 3 * 3,
        ("f32", "f64"),
    ),
    Identity("x / 3 = x * (1 / 3)", NOBODY, NEVER, lambda x, y: x / number(x, 3.0), lambda x, y: x / 3),
    Identity("x / y = x * (1 / y)", NOBODY, NEVER, lambda x, y: x / y, lambda x, y: x / y),
    Identity(
        "x y + x, rounded once, outside of sums",
        NOBODY,
        NEVER,
        lambda x, y: x * y + x,
        lambda x, y: x * y + x,
        ("f32", "f64"),
    ),
    Identity(
        "sqrt(x) sqrt(x) = x",
        NOBODY,
        NEVER,
        lambda x, y: sx.sqrt(x) * sx.sqrt(x),
        lambda x, y: np.sqrt(x) * np.sqrt(x),
        ("f32", "f64"),
    ),
    Identity(
        "x ** 0.5 = sqrt(x)",
        NOBODY,
        "all but -0 and -inf",
        lambda x, y: sx.pow(x, number(x, 0.5)),
        lambda x, y: np.where(np.isneginf(x), np.inf, np.sqrt(x) + 0),
        rounds=True,
    ),
    Identity(
        "log(exp(x)) = x",
        NOBODY,
        NEVER,
        lambda x, y: sx.log(sx.exp(x)),
        lambda x, y: np.log(np.exp(x)),
        ("f64",),
        rounds=True,
    ),
    Identity(
        "exp(log(x)) = x",
        NOBODY,
        "positive numbers",
        lambda x, y: sx.exp(sx.log(x)),
        lambda x, y: np.exp(np.log(x)),
        ("f64",),
        rounds=True,
    ),
    # ---- of complex numbers
    Identity("-(-x) = x", FOLDERS, ALL, lambda x, y: sx.neg(sx.neg(x)), lambda x, y: x, COMPLEX),
    Identity(
        "x + 0 = x", NOBODY, "parts but -0", lambda x, y: x + number(x, 0.0), lambda x, y: x + x.dtype.type(0), COMPLEX
    ),
    Identity(
        "x * 1 = x",
        NOBODY,
        "finite parts but -0",
        lambda x, y: x * number(x, 1.0),
        lambda x, y: _product(x, x.dtype.type(1)),
        COMPLEX,
    ),
    Identity("(x - y) + y = x", NOBODY, NEVER, lambda x, y: (x - y) + y, lambda x, y: (x - y) + y, COMPLEX),
)


@dataclass(frozen=True)
class Rewrite:
    """A rewrite of whole sums, with the numbers for which it holds, and what the compiler does for others.

    Attributes:
        written: the identity.
        where: the file that applies it.
        holds: the numbers for which both sides are the same but for rounding.
        others: what is done where numbers are others.
        test: the test that runs it at numbers of both kinds, as pytest names it.
    """

    written: str
    where: str
    holds: str
    others: str
    test: str


HERE, ATTENTION = "tests/numerics/test_identities.py", "tests/targets/cpu/attention/test_attention.py"
GROUPING = "tests/targets/grouping"
REWRITES = (
    Rewrite(
        "sums of any order, in blocks with their rounding errors",
        "targets/codegen/sums/compensated.py",
        "finite sums",
        "infinities and NaN are what one running sum makes of them",
        f"{HERE}::test_sums_of_special_numbers",
    ),
    Rewrite(
        "the first value of a reduction is added once",
        "targets/codegen/reductions.py",
        "all",
        "-",
        f"{HERE}::test_first_values",
    ),
    Rewrite(
        "w y + w z = w (y + z) where w is repeated along a sum",
        CONTRACTION,
        "integers",
        "of floats each product is made",
        "tests/ops/test_contraction.py::test_repeated_next_to_overflow",
    ),
    Rewrite(
        "sum((p / s) v) = sum(p v) / s in attention, p at most 1",
        "targets/codegen/match/attention_rows.py",
        "values below max / (2 keys)",
        "on CPUs weights are divided first; on GPUs the sum may overflow",
        f"{ATTENTION}::test_values_next_to_overflow",
    ),
    Rewrite(
        "0 v = 0 behind a mask of attention",
        "targets/cpu/attention/products.py",
        "finite values",
        "no key is left out",
        f"{ATTENTION}::test_masks_of_indices",
    ),
    Rewrite(
        "exp(x) = 0 in attention, of results next to denormals",
        "targets/cpu/attention/attention.py",
        "values below 2^100",
        "weights below 2^-125.5 (f32), 2^-1021.5 (f64) count as 0",
        f"{ATTENTION}::test_weights_that_would_be_denormal_are_zero",
    ),
    Rewrite(
        "x y = x1 y1 + x1 y2 + x2 y1 ... by bf16x3 and other algorithms",
        "lowering/support/dot_algorithm.py",
        "finite numbers",
        "infinities are those of x1 y1",
        "tests/ops/test_contraction.py::test_algorithms_next_to_infinity",
    ),
    Rewrite(
        "complex products as products of parts",
        "targets/grouping/complex_products.py",
        "all",
        "-",
        f"{GROUPING}/test_complex_products.py::test_an_infinity_makes_what_the_products_make",
    ),
    Rewrite(
        "products of a loop's slices as one product before it",
        "targets/grouping/hoist.py",
        "all",
        "-",
        f"{GROUPING}/test_hoist.py::test_numbers_that_are_none_stay_in_their_rows",
    ),
    Rewrite(
        "a b = (b^T a^T)^T",
        "targets/grouping/transpose_products.py",
        "all",
        "-",
        f"{GROUPING}/test_transpose_products.py::test_numbers_that_are_none_arrive",
    ),
    Rewrite(
        "products of extended integers as extended products",
        "targets/grouping/widen_in_products.py",
        "integers",
        "-",
        f"{GROUPING}/test_widen_in_products.py::test_extended_operands",
    ),
    Rewrite(
        "weights are dequantised where they are multiplied, by the same operations",
        "targets/grouping/factors.py",
        "all",
        "-",
        "tests/targets/cpu/contraction/test_factors.py::test_weights",
    ),
    Rewrite(
        "x = x + -0 + ... + -0, for a sum of what devices hold",
        "targets/stablehlo/partition/emit.py",
        "all",
        "-",
        "tests/interop/test_sharded.py::test_zeros_keep_their_signs",
    ),
    Rewrite(
        "w (x + y) = w x + w y, for sums that shardings leave to be added (`unreduced`)",
        "targets/stablehlo/partition/partitioner.py",
        "products and partial sums in range",
        "as the program's shardings ask; no other sum is left to be added",
        "tests/interop/test_sharded.py::test_products_are_added_up_once",
    ),
    Rewrite(
        "f(f(x, y), z) = f(x, f(y, z)) in scans that JAX calls associative",
        "lowering/rules/associative_scan.py",
        "integers; floats whose partial results are in range",
        "the order is not the program's, as in JAX itself on other sizes",
        "tests/numerics/test_long_scans.py::test_recurrences",
    ),
)
