"""Element-wise operations run: each row is an operation, the types it is tried on and how near it must come.

Oracles: the reference interpreter for everything; XLA:CPU for integers and pred, whose results are exact; numpy in a
wider type for elementary functions (tests/numerics looks at those more closely).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.samples import EDGE_SHAPES, FLOATS, INTEGERS, SIGNED, sample
from tests.programs import run


@dataclass(frozen=True)
class Row:
    """An operation, its number of operands, element types, and units in the last place allowed for floats."""

    name: str
    arity: int
    types: tuple[str, ...]
    ulp: float = 0
    limit: float = 0  # floats are drawn from [-limit, limit] when it is not 0

    @property
    def function(self) -> Callable[..., Any]:
        return getattr(sx, self.name)


MAIN_FLOATS = ("bf16", "f16", "f32", "f64")
ROWS = [
    Row("abs", 1, (*SIGNED, *FLOATS)),
    Row("neg", 1, (*INTEGERS, *FLOATS)),
    Row("sign", 1, (*SIGNED, *FLOATS)),
    Row("not_", 1, ("pred", *INTEGERS)),
    Row("clz", 1, INTEGERS),
    Row("population_count", 1, INTEGERS),
    Row("ceil", 1, FLOATS),
    Row("floor", 1, FLOATS),
    Row("round", 1, FLOATS),
    Row("round_nearest_even", 1, FLOATS),
    Row("is_finite", 1, FLOATS),
    Row("sqrt", 1, MAIN_FLOATS, ulp=0),
    Row("rsqrt", 1, MAIN_FLOATS, ulp=2),
    Row("cbrt", 1, MAIN_FLOATS, ulp=3),
    Row("exp", 1, MAIN_FLOATS, ulp=3),
    Row("expm1", 1, MAIN_FLOATS, ulp=3),
    Row("log", 1, MAIN_FLOATS, ulp=3),
    Row("log1p", 1, MAIN_FLOATS, ulp=3),
    Row("sin", 1, MAIN_FLOATS, ulp=3),
    Row("cos", 1, MAIN_FLOATS, ulp=3),
    Row("tan", 1, MAIN_FLOATS, ulp=4),
    Row("tanh", 1, MAIN_FLOATS, ulp=3),
    Row("add", 2, ("pred", *INTEGERS, *FLOATS)),
    Row("sub", 2, (*INTEGERS, *FLOATS)),
    Row("mul", 2, ("pred", *INTEGERS, *FLOATS)),
    Row("div", 2, FLOATS),
    Row("max", 2, ("pred", *INTEGERS, *FLOATS)),
    Row("min", 2, ("pred", *INTEGERS, *FLOATS)),
    Row("rem", 2, MAIN_FLOATS),
    Row("pow", 2, MAIN_FLOATS, ulp=3),
    Row("atan2", 2, MAIN_FLOATS, ulp=3),
    Row("and_", 2, ("pred", *INTEGERS)),
    Row("or_", 2, ("pred", *INTEGERS)),
    Row("xor", 2, ("pred", *INTEGERS)),
    Row("shift_left", 2, INTEGERS),
    Row("shift_right_arithmetic", 2, INTEGERS),
    Row("shift_right_logical", 2, INTEGERS),
    *[Row(n, 2, ("pred", *INTEGERS, *FLOATS)) for n in ("eq", "ne", "ge", "gt", "le", "lt")],
]
CASES = [pytest.param(row, name, id=f"{row.name}-{name}") for row in ROWS for name in row.types]


def _arguments(row: Row, name: str, size: int) -> list[np.ndarray]:
    return [sample(name, size, seed) for seed in range(row.arity)]


@pytest.mark.parametrize(("row", "name"), CASES)
def test_against_the_interpreter(row: Row, name: str) -> None:
    args = _arguments(row, name, 203)
    run(lambda b, *x: row.function(*x), *args, against=["interpreter"], ulp=row.ulp)


@pytest.mark.parametrize(
    ("row", "name"), [c for c in CASES if not element_type(c.values[1]).is_float and "4" not in c.values[1][1:2]]
)
def test_integers_against_xla(row: Row, name: str) -> None:
    run(lambda b, *x: row.function(*x), *_arguments(row, name, 203), against=["xla"])


@pytest.mark.parametrize("name", ["f8e4m3", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3b11fnuz"])
def test_total_order_of_all_pairs(name: str) -> None:
    """Every two elements of a type. Oracle: XLA:CPU, for which the NaN of types that have one alone is the lowest."""
    every = np.arange(256, dtype=np.uint8).view(element_type(name).dtype)

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        return sx.lt_total_order(*(sx.broadcast_in_dim(x, (256, 256), (place,)) for place in (0, 1)))

    run(program, every, against=["xla"])


@pytest.mark.parametrize("name", MAIN_FLOATS)
@pytest.mark.parametrize("direction", ["eq", "ne", "ge", "gt", "le", "lt"])
def test_total_order(direction: str, name: str) -> None:
    """-NaN < -inf < ... < -0 < +0 < ... < inf < NaN. Oracle: XLA:CPU; the interpreter compares as if by IEEE-754's
    other order, in which NaN differs from itself."""
    x, y = sample(name, 203), sample(name, 203, 1)
    y[20:60] = x[20:60]
    run(lambda b, v, w: getattr(sx, f"{direction}_total_order")(v, w), x, y, against=["xla"])


@pytest.mark.parametrize("shape", EDGE_SHAPES, ids=str)
@pytest.mark.parametrize("name", ["add", "lt", "tanh"])
def test_shapes(name: str, shape: tuple[int, ...]) -> None:
    row = next(r for r in ROWS if r.name == name)
    size = int(np.prod(shape))
    args = [sample("f32", size, seed).reshape(shape) for seed in range(row.arity)]
    run(lambda b, *x: row.function(*x), *args, against=["interpreter"], ulp=row.ulp)


@pytest.mark.parametrize("name", MAIN_FLOATS)
def test_logistic(name: str) -> None:
    """Oracle: numpy in a wider type; the interpreter's exp(-x) overflows where the result does not."""
    x = sample(name, 2000)
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        wanted = (1 / (1 + np.exp(-wide))).astype(x.dtype)
    run(lambda b, v: sx.logistic(v), x, against=[], expected=[wanted], ulp={"f64": 3, "f32": 2}.get(name, 1))


WIDE = {"f32": np.float64, "f64": np.longdouble}


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize(
    ("operation", "reference"),
    [("exp", np.exp), ("log", np.log), ("tanh", np.tanh), ("sin", np.sin), ("expm1", np.expm1), ("log1p", np.log1p)],
)
def test_elementary_functions_against_numpy(operation: str, reference: Callable[..., Any], name: str) -> None:
    x = sample(name, 2000)
    if operation == "sin":
        x = x[np.abs(x) < 1e4]
    with np.errstate(all="ignore"):
        wanted = reference(x.astype(WIDE[name])).astype(x.dtype)
    run(lambda b, v: getattr(sx, operation)(v), x, against=[], expected=[wanted], ulp=2 if name == "f32" else 3)


@pytest.mark.parametrize("name", [t for t in INTEGERS if t not in ("s4", "u4")])
def test_division_never_traps(name: str) -> None:
    """x / 0, x rem 0 and the smallest integer by -1. Oracle: XLA:CPU, since the specification leaves them open."""
    x, y = sample(name, 203), sample(name, 203, 5)
    x[:6] = [0, 1, 7, np.iinfo(x.dtype).min, np.iinfo(x.dtype).max, np.iinfo(x.dtype).min]
    y[:6] = [0, 0, 0, 0, 0, 1 if name.startswith("u") else -1]
    run(lambda b, v, w: [sx.div(v, w), sx.rem(v, w)], x, y, against=["xla"])


@pytest.mark.parametrize("name", ["s32", "u32", "s64", "u8", "s8"])
def test_integer_power(name: str) -> None:
    x, y = sample(name, 103), sample(name, 103, 7)
    x[:5], y[:5] = [1, 2, 3, 0, 5], [200 % 127, 5, 0, 0, 1]
    run(lambda b, v, w: sx.pow(v, w), x, abs(y) % 40, against=["interpreter", "xla"])


@pytest.mark.parametrize("type_", [np.uint16, np.int32, np.uint64])
def test_integer_power_with_large_exponents(type_: type[np.integer]) -> None:
    """Modulo the range of the type; XLA:CPU takes the exponent's six lowest bits."""
    bits = np.iinfo(type_).bits
    y = np.array([63, 64, 65, 127, 1000, 0x7FA5], type_)
    x = np.array([3, 17, 7, 5, 2, 9], type_)
    right = np.array([pow(int(a), int(b), 1 << bits) for a, b in zip(x, y, strict=True)], f"uint{bits}").astype(type_)
    run(lambda b, v, w: sx.pow(v, w), x, y, against=["interpreter"], expected=[right])


def test_powers_of_one() -> None:
    """Also by NaN of both kinds; XLA:CPU has NaN where the exponent is a signalling one."""
    y = np.array([0x7FC00000, 0xFFB92F01, 0x7F800000, 0], np.uint32).view(np.float32)
    one = np.ones(4, np.float32)
    run(lambda b, v, w: sx.pow(v, w), one, y, against=["interpreter"], expected=[one])


@pytest.mark.parametrize("name", ["pred", "s4", "u16", "s64", "bf16", "f32", "c64"])
def test_select(name: str) -> None:
    p = sample("pred", 40)
    x, y = sample(name, 40), sample(name, 40, 3)
    run(lambda b, q, v, w: sx.select(q, v, w), p, x, y, against=[], expected=[np.where(p, x, y)])
    run(lambda b, q, v, w: sx.select(q, v, w), np.array(True), x, y, against=[], expected=[x])


def test_select_between_tuples() -> None:
    x, y = sample("f32", 5), sample("s32", 3)

    def make(b: sx.XlaBuilder, p: sx.XlaOp, v: sx.XlaOp, w: sx.XlaOp) -> list[sx.XlaOp]:
        return list(sx.select(p, sx.tuple([v, w]), sx.tuple([sx.neg(v), sx.neg(w)])))

    run(make, np.array(False), x, y, against=[], expected=[-x, -y])


@pytest.mark.parametrize("name", ["s8", "u32", "bf16", "f32", "f64"])
def test_clamp(name: str) -> None:
    low, x, high = (sample(name, 60, seed) for seed in range(3))
    run(lambda b, a, v, c: sx.clamp(a, v, c), low, x, high, against=["interpreter"])
    run(lambda b, a, v, c: sx.clamp(a, v, c), low[7], x, high[8], against=["interpreter"])


IDENTITIES: list[tuple[Callable[..., Any], float, bool]] = [  # and whether the operands may change places
    (sx.add, -0.0, True),
    (sx.mul, 1, True),
    (sx.sub, 0, False),
    (sx.div, 1, False),
    (sx.max, -np.inf, True),
]


@pytest.mark.parametrize("name", ["f8e4m3b11fnuz", "f8e5m2", "bf16", "f16", "f32", "f64", "s4", "s32", "u8"])
@pytest.mark.parametrize("shape", [(), (5, 9)], ids=str)
def test_an_operation_on_its_identity_is_its_other_operand(shape: tuple[int, ...], name: str) -> None:
    """No kernel, and the bits of the operand: zeros keep their signs, denormals stay."""
    element = element_type(name)
    x = sample(name, 45)[: np.prod(shape, dtype=int)].reshape(shape)
    rows = [row for row in IDENTITIES if element.is_float or np.isfinite(row[1])]
    if not element.is_float:
        shifts = (sx.shift_left, sx.shift_right_arithmetic, sx.shift_right_logical)
        rows += [(sx.or_, 0, True), (sx.xor, 0, True), *((shift, 0, False) for shift in shifts)]
        rows.append((sx.and_, -1 if element.is_signed else 2**element.bits - 1, True))

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        made = []
        for function, number, commutes in rows:
            scalar = b.constant(np.array(number, element.dtype))
            for one in (scalar, sx.broadcast(scalar, shape)):
                made += [function(v, one), function(one, v)] if commutes else [function(v, one)]
        return made

    if name == "f8e4m3b11fnuz":  # it has neither infinities nor -0, so that 0 is the identity of sums
        rows = rows[:-1]
    for result in run(make, x, against=["interpreter"]):
        number = ~np.isnan(x) if element.is_float else np.ones(shape, bool)
        assert result[number].tobytes() == x[number].tobytes()
    b = sx.XlaBuilder("identities")
    parameter = b.parameter(0, sx.Shape(x.dtype, shape))
    assert sx.compile(b.build(sx.tuple(make(b, parameter)))).kernels == ()


def test_what_looks_like_an_identity_is_computed() -> None:
    x = np.array([0.0, -0.0, np.nan, np.inf, 3.0], np.float32)
    results = run(
        lambda b, v: [v + np.float32(0), v - np.float32(-0.0), np.float32(0) - v, np.float32(1) / v],
        x,
        against=["interpreter"],
    )
    assert [bool(np.signbit(result[1])) for result in results] == [False, False, False, True]
    infinite = np.array([complex(np.inf, 1)], np.complex64)
    (product,) = run(lambda b, v: v * np.complex64(1), infinite, against=[])
    assert np.isnan(product.imag).all()


def test_denormals_are_kept() -> None:
    """StableHLO's floats are IEEE-754's; XLA:CPU flushes these to zero."""
    tiny = np.array([1e-45, -3e-40, 1.1e-38], np.float32)
    run(lambda b, x: [sx.add(x, x), sx.mul(x, b.constant(np.float32(0.5)))], tiny, against=["interpreter"])
    assert np.abs(run(lambda b, x: sx.add(x, x), tiny, against=[])[0]).min() > 0


def test_signed_zeros_and_nan_in_max_and_min() -> None:
    x = np.array([0.0, -0.0, np.nan, 1.0, -np.inf], np.float32)
    y = np.array([-0.0, 0.0, 1.0, np.nan, np.nan], np.float32)
    high, low = run(lambda b, v, w: [sx.max(v, w), sx.min(v, w)], x, y, against=["interpreter"])
    assert not np.signbit(high[:2]).any()
    assert np.signbit(low[:2]).all()
    assert np.isnan([high[2:], low[2:]]).all()
