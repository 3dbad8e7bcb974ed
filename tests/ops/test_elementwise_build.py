"""What the builder emits for elementwise operations, and what it refuses.

Oracles: the reference interpreter runs what is emitted, numpy and scipy say what it should give; StableHLO's verifier
says which element types an operation takes.
"""

from __future__ import annotations

import jaxlib.mlir.ir as ir
import numpy as np
import pytest
import scipy.special

import stablexla as sx
from stablexla.builder.registry import REGISTRY
from stablexla.dialects.contexts import diagnostics, stablehlo_context
from tests.ops.building import build, evaluate, refused

UNARY = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": lambda x: np.arccosh(x + 1),
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "bessel_i1e": scipy.special.i1e,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "clz": lambda x: np.array([32 - int(v).bit_length() if v >= 0 else 0 for v in x]),
    "conj": np.conj,
    "cos": np.cos,
    "cosh": np.cosh,
    "digamma": scipy.special.digamma,
    "erf": scipy.special.erf,
    "erf_inv": scipy.special.erfinv,
    "erfc": scipy.special.erfc,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "imag": np.imag,
    "is_finite": np.isfinite,
    "is_inf": np.isinf,
    "is_nan": np.isnan,
    "is_neg_inf": np.isneginf,
    "is_pos_inf": np.isposinf,
    "lgamma": scipy.special.gammaln,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": scipy.special.expit,
    "neg": np.negative,
    "not_": np.invert,
    "population_count": lambda x: np.array([(int(v) % 2**32).bit_count() for v in x]),
    "real": np.real,
    "reciprocal": np.reciprocal,
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "round_nearest_even": np.round,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}
BINARY = {
    "add": np.add,
    "and_": np.bitwise_and,
    "atan2": np.arctan2,
    "complex": lambda x, y: x + 1j * y,
    "div": lambda x, y: np.trunc(x / y) if x.dtype.kind in "iu" else x / y,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "mulhi": lambda x, y: (x.astype(np.int64) * y) >> 32,
    "next_after": np.nextafter,
    "or_": np.bitwise_or,
    "polygamma": lambda n, x: scipy.special.polygamma(1, x),
    "pow": np.power,
    "rem": np.fmod,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "shift_right_logical": lambda x, y: (x.view(np.uint32) >> y.view(np.uint32)).view(np.int32),
    "sub": np.subtract,
    "xor": np.bitwise_xor,
    "zeta": scipy.special.zeta,
}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
}
TOTAL = [f"{name}_total_order" for name in COMPARISONS]

SPECIAL = np.float32([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan])
SMALL = np.float32([0.125, 0.25, 0.5, 0.75, 0.9])
INTEGERS = np.int32([0, 1, -1, 100, -(2**31), 2**31 - 1])
COMPLEX = np.complex64([1 + 2j, -0.5 + 0.25j, 3 - 1j])

ON_SPECIAL = [
    "abs",
    "ceil",
    "floor",
    "is_finite",
    "is_inf",
    "is_nan",
    "is_neg_inf",
    "is_pos_inf",
    "neg",
    "sign",
    "imag",
]
ON_SPECIAL += ["round_nearest_even", "real"]
ON_INTEGERS = ["clz", "not_", "population_count", "square", "neg"]
ON_COMPLEX = ["abs", "conj", "cos", "cosh", "exp", "imag", "log", "neg", "real", "sin", "sqrt", "square", "tanh"]


def evaluate_named(name, *arrays):
    return evaluate(getattr(sx, name), *arrays)


def test_every_operation_of_the_family_is_tested():
    family = {name for name, entry in REGISTRY.items() if entry.family == "elementwise"}
    assert family == {*UNARY, *BINARY, *COMPARISONS, *TOTAL, "compare", "select", "clamp"}


@pytest.mark.parametrize("name", sorted(set(UNARY) - {"clz", "conj", "not_", "population_count"}))
def test_unary_on_floats(name):
    x = SPECIAL if name in ON_SPECIAL else SMALL
    argument = SMALL + 1 if name == "acosh" else x
    expected = UNARY[name](x)
    tolerance = 2e-5 if name in ("lgamma", "digamma") else 2e-6
    np.testing.assert_allclose(evaluate_named(name, argument), expected, rtol=tolerance, atol=1e-7)


def test_round_takes_halves_away_from_zero():
    np.testing.assert_array_equal(evaluate(sx.round, np.float32([0.5, 1.5, 2.5, -0.5, -2.5])), [1, 2, 3, -1, -3])


@pytest.mark.parametrize("name", ON_INTEGERS)
def test_unary_on_integers(name):
    with np.errstate(over="ignore"):
        expected = UNARY[name](INTEGERS).astype(np.int32)
    np.testing.assert_array_equal(evaluate_named(name, INTEGERS), expected)


@pytest.mark.parametrize("name", ON_COMPLEX)
def test_unary_on_complex_numbers(name):
    np.testing.assert_allclose(evaluate_named(name, COMPLEX), UNARY[name](COMPLEX), rtol=1e-5)


@pytest.mark.parametrize("name", ["not_"])
def test_unary_on_truth_values(name):
    np.testing.assert_array_equal(evaluate_named(name, np.array([True, False])), [False, True])


ON_BITS = {"and_", "mulhi", "or_", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"}


@pytest.mark.parametrize("name", sorted(set(BINARY) - ON_BITS))
def test_binary_on_floats(name):
    x, y = SMALL * 4, SMALL[::-1].copy() + 1
    if name in ("polygamma", "zeta"):
        x = np.full_like(x, 1 if name == "polygamma" else 2)
    np.testing.assert_allclose(evaluate_named(name, x, y), BINARY[name](x, y), rtol=2e-5)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "mulhi", "div", "rem", "max", "min", "and_", "or_", "xor"])
def test_binary_on_integers(name):
    x, y = np.int32([7, -7, 2**31 - 1, -3]), np.int32([2, 2, 3, -1])
    with np.errstate(over="ignore"):
        expected = BINARY[name](x, y).astype(np.int32)
    np.testing.assert_array_equal(evaluate_named(name, x, y), expected)


@pytest.mark.parametrize("name", ["shift_left", "shift_right_arithmetic", "shift_right_logical"])
def test_shifts(name):
    x, y = np.int32([1, -8, 2**31 - 1]), np.int32([4, 1, 30])
    np.testing.assert_array_equal(evaluate_named(name, x, y), BINARY[name](x, y))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
@pytest.mark.parametrize("name", ["shift_left", "shift_right_arithmetic", "shift_right_logical"])
def test_shifts_by_a_known_amount(name, dtype):
    """As by an amount that is only known at run time, also where that is not below the width."""
    width = np.dtype(dtype).itemsize * 8
    x = np.array([1, 2**width - 8, 2 ** (width - 1) - 1, 2 ** (width - 1)], np.uint64).astype(dtype)
    for amount in (0, 1, width - 1, width, 2**width - 1):
        y = np.full(x.shape, amount, np.uint64).astype(dtype)
        found = evaluate(lambda v, y=y: getattr(sx, name)(v, v.builder.constant(y)), x)
        np.testing.assert_array_equal(found, evaluate_named(name, x, y))


@pytest.mark.parametrize(
    ("name", "expected"), [("add", "or"), ("mul", "and"), ("max", "or"), ("min", "and"), ("xor", "xor")]
)
def test_binary_on_truth_values(name, expected):
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    np.testing.assert_array_equal(evaluate_named(name, x, y), getattr(np, f"logical_{expected}")(x, y))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_binary_on_complex_numbers(name):
    y = COMPLEX[::-1].copy()
    np.testing.assert_allclose(evaluate_named(name, COMPLEX, y), BINARY[name](COMPLEX, y), rtol=1e-6)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint8, np.bool_])
def test_comparisons(name, dtype):
    base = SPECIAL if dtype is np.float32 else np.array([0, 1, 127, 128, 255], np.uint8).astype(dtype)
    x, y = (part.ravel().copy() for part in np.meshgrid(base, base))
    np.testing.assert_array_equal(evaluate_named(name, x, y), COMPARISONS[name](x, y))


@pytest.mark.parametrize("name", TOTAL)
def test_total_order_is_asked_for(name):
    """Of floats; the interpreter does not know this order, so the text is looked at."""
    direction = name.split("_")[0].upper()
    assert f"compare {direction}, %arg0, %arg1, TOTALORDER" in str(build(getattr(sx, name), sx.f32[2], sx.f32[2]))
    assert f"compare {direction}, %arg0, %arg1, SIGNED" in str(build(getattr(sx, name), sx.s32[2], sx.s32[2]))
    assert f"compare {direction}, %arg0, %arg1, FLOAT" in str(build(getattr(sx, name), sx.c64[2], sx.c64[2]))


def test_compare_type_follows_the_element_type():
    for shape, kind in [(sx.f32, "FLOAT"), (sx.s8, "SIGNED"), (sx.u8, "UNSIGNED"), (sx.pred, "UNSIGNED")]:
        assert kind in str(build(lambda x, y: sx.compare(x, y, (), "LE"), shape[2], shape[2]))


def test_compare_i3():
    refused("I3", lambda x, y: sx.compare(x, y), sx.f32[2], sx.f32[2])
    refused("I3", lambda x, y: sx.compare(x, y, (), "lt"), sx.f32[2], sx.f32[2])


def test_compare_c1():
    refused("C1", lambda x, y: sx.compare(x, y, (), "LT"), sx.f32[2], sx.f64[2])


def test_compare_c3():
    refused("C3", lambda x, y: sx.compare(x, y, (), "LT", "UNSIGNED"), sx.s32[2], sx.s32[2])
    refused("C3", lambda x, y: sx.compare(x, y, (), "LT", "SIGNED"), sx.f32[2], sx.f32[2])


@pytest.mark.parametrize("name", sorted({*BINARY, *COMPARISONS, *TOTAL}))
def test_binary_c1(name):
    """C1 of every operation of two operands: one element type."""
    one, other = ("s32", "u32") if REGISTRY[name].allows(sx.s32) else ("f32", "f64")
    error = refused("C1", lambda x, y: getattr(sx, name)(x, y), sx.Shape(one, (2,)), sx.Shape(other, (2,)))
    assert error.operation == name
    assert error.operands == {"lhs": f"{one}[2]", "rhs": f"{other}[2]"}


TABLE = [n for n, e in REGISTRY.items() if e.family == "elementwise" and e.kinds != REGISTRY["eq"].kinds]


@pytest.mark.parametrize("name", TABLE)
def test_element_types_i1(name):
    """Each type is either built and verifies, or is refused by I1."""
    entry = REGISTRY[name]
    operation = getattr(sx, name)
    for element_type in sx.ELEMENT_TYPES:
        shapes = [element_type[2]] * (2 if name in BINARY else 1)
        if entry.allows(element_type):
            build(lambda *ops: operation(*ops), *shapes)
        else:
            error = refused("I1", lambda *ops: operation(*ops), *shapes)
            assert f"not {element_type}" in error.summary


@pytest.mark.parametrize("name", sorted({*UNARY, *BINARY} - {"is_nan", "reciprocal", "square"}))
def test_the_table_agrees_with_the_verifier(name):
    """What the verifier takes beyond XLA's operation: conjugates of real numbers, a Bessel function of complex ones,
    and their remainder, which nobody defines."""
    entry = REGISTRY[name]
    for t in sx.ELEMENT_TYPES:
        beyond = (name == "conj" and t.is_float) or (name in ("bessel_i1e", "rem") and t.is_complex)
        assert (entry.allows(t) or beyond) == verifies(entry.emits, t, 2 if name in BINARY else 1)


def test_a_bessel_function_of_complex_numbers_is_refused():
    """CHLO's types allow it, and nothing in it says what it is."""
    c64 = "tensor<3xcomplex<f32>>"
    text = f"func.func @main(%x: {c64}) -> {c64} {{ %0 = chlo.bessel_i1e %x : {c64} -> {c64} return %0 : {c64} }}"
    with pytest.raises(sx.UnsupportedError, match=r"chlo\.bessel_i1e: complex numbers"):
        sx.compile(text)


def verifies(operation: str, t: sx.ElementType, operands: int) -> bool:
    """Whether the verifier takes the operation on operands of this type, made without the builder."""
    result = t
    if operation in ("stablehlo.abs", "stablehlo.real", "stablehlo.imag"):
        result = t.part
    elif operation in ("stablehlo.is_finite", "chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf"):
        result = sx.pred
    elif operation == "stablehlo.complex":
        result = sx.c64 if t is sx.f32 else sx.c128
    context = stablehlo_context()
    module = ir.Module.create(ir.Location.unknown(context))
    at = {"loc": ir.Location.unknown(context), "ip": ir.InsertionPoint(module.body)}
    types = [ir.Type.parse(t[2].mlir, context)] * operands
    source = ir.Operation.create("builtin.unrealized_conversion_cast", types, [], **at)
    made = ir.Operation.create(operation, [ir.Type.parse(result[2].mlir, context)], list(source.results), **at)
    with diagnostics(context):
        try:
            return made.verify()
        except ir.MLIRError:
            return False


@pytest.mark.parametrize("name", ["add", "eq", "max"])
def test_tuples_are_refused(name):
    refused("", lambda t: getattr(sx, name)(t, t), sx.Shape.tuple((sx.f32[2],)))


class TestSelect:
    def test_values(self):
        p = np.array([True, False, False, True])
        x, y = np.int32([1, 2, 3, 4]), np.int32([100, 200, 300, 400])
        np.testing.assert_array_equal(evaluate(sx.select, p, x, y), [1, 200, 300, 4])
        np.testing.assert_array_equal(evaluate(sx.select, np.array(True), x, y), x)
        np.testing.assert_array_equal(evaluate(lambda p, x: sx.select(p, x, 0), p, x), [1, 0, 0, 4])
        np.testing.assert_array_equal(evaluate(lambda p, x: sx.select(p, 7, x), p, x), [7, 2, 3, 7])

    def test_between_tuples(self):
        def make(p, x, y):
            both = sx.select(p, sx.tuple((x, sx.tuple((y,)))), sx.tuple((x + 1, sx.tuple((y * 2,)))))
            assert str(both.shape) == "(s32[2], (f32[]))"
            return both

        for p in (True, False):
            first, second = evaluate(
                lambda *ops: list(leaves(make(*ops))), np.array(p), np.int32([1, 2]), np.float32(3)
            )
            assert (first.tolist(), second) == (([1, 2], 3) if p else ([2, 3], 6))

    def test_select_i1(self):
        refused("I1", sx_select, sx.s32[2], sx.f32[2], sx.f32[2])

    def test_select_c1(self):
        refused("C1", sx_select, sx.pred[3], sx.f32[2], sx.f32[2])
        pair = sx.Shape.tuple((sx.f32[2],))
        refused("C1", sx_select, sx.pred[2], pair, pair)

    def test_select_c2(self):
        refused("C2", sx_select, sx.pred[2], sx.f32[2], sx.f64[2])
        refused("C2", sx_select, sx.pred[()], sx.f32[2], sx.f32[3])


def sx_select(p, x, y):
    return sx.select(p, x, y)


def leaves(op):
    return [leaf for part in op for leaf in leaves(part)] if op.shape.is_tuple else [op]


class TestClamp:
    def test_values(self):
        x = np.int32([-1, 5, 9])
        np.testing.assert_array_equal(evaluate(lambda a: sx.clamp(0, a, 6), x), [0, 5, 6])
        np.testing.assert_array_equal(
            evaluate(sx.clamp, np.int32([5, 10, 15]), np.int32([3, 13, 23]), np.int32(20)), [5, 13, 20]
        )

    def test_clamp_c1(self):
        refused("C1", lambda a, x: sx.clamp(a, x, 1.0), sx.f32[4], sx.f32[3, 4])

    def test_clamp_c2(self):
        refused("C2", lambda a, x: sx.clamp(1.0, x, a), sx.f32[4], sx.f32[3, 4])

    def test_clamp_c3(self):
        refused("C3", lambda a, x: sx.clamp(a, x, 1.0), sx.f64[()], sx.f32[3, 4])
