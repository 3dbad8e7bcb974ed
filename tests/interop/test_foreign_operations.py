"""Operations of other producers that have no lowering of their own: deprecated ones, CHLO's newest, dynamic ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import stablexla as sx
from tests.oracles import xla

F32 = np.float32
GENERATOR = np.random.default_rng(7)


def given(text: str, *arrays: Any) -> list[Any]:
    """The results of a program whose text lacks the signature of `main`: `%0`, `%1` ... are the arguments."""
    return list(sx.compile(text).execute(list(arrays)))


def equal(text: str, arrays: Sequence[Any], expected: Sequence[Any]) -> None:
    for result, wanted in zip(given(text, *arrays), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


def type_of(shape: Sequence[int], element: str = "f32") -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


# ---- deprecated ------------------------------------------------------------------------------------------------------


def test_broadcast_token_and_sum_over_replicas() -> None:
    text = """func.func @main(%a: tensor<2x3xf32>) -> (tensor<5x2x3xf32>, tensor<2x3xf32>) {
      %0 = "stablehlo.broadcast"(%a) {broadcast_sizes = array<i64: 5>} : (tensor<2x3xf32>) -> tensor<5x2x3xf32>
      %t = "stablehlo.create_token"() : () -> !stablehlo.token
      %1 = "stablehlo.cross-replica-sum"(%a) {replica_groups = dense<0> : tensor<1x1xi64>}
          : (tensor<2x3xf32>) -> tensor<2x3xf32>
      return %0, %1 : tensor<5x2x3xf32>, tensor<2x3xf32>
    }"""
    x = GENERATOR.standard_normal((2, 3)).astype(F32)
    equal(text, [x], [np.broadcast_to(x, (5, 2, 3)), x])


EINSUMS = [
    ("ij,jk->ki", (2, 3), (3, 4)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("ii,ij->ij", (3, 3), (3, 4)),
    ("ij,kl->iljk", (2, 3), (4, 5)),
    ("ij,kj->i", (3, 4), (5, 4)),
    ("i,i->", (3,), (3,)),
    ("bij,bjk->kbi", (7, 2, 3), (1, 3, 4)),
    ("...i,i->...", (2, 3, 4), (4,)),
    ("iij->j", (3, 3, 4)),
    ("ij->", (2, 3)),
    ("...ij->...ji", (2, 3, 4)),
]


@pytest.mark.parametrize(("config", "shapes"), [(config, shapes) for config, *shapes in EINSUMS])
def test_einsum(config: str, shapes: list[tuple[int, ...]]) -> None:
    """Against numpy in f64."""
    arrays = [GENERATOR.standard_normal(shape).astype(F32) for shape in shapes]
    expected = np.einsum(config, *(a.astype(np.float64) for a in arrays))
    (result,) = given(einsum(config, shapes, expected.shape), *arrays)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-6 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize(("config", "shapes"), [("ab,c->c", [(3, 2), (2,)]), ("ab,b->b", [(3, 2), (2,)])])
def test_einsum_next_to_overflow(config: str, shapes: list[tuple[int, ...]]) -> None:
    """The sum of the elements of one operand overflows, that of the products does not."""
    arrays = [np.full(shapes[0], 3e38, F32), np.full(shapes[1], 0.125, F32)]
    expected = np.einsum(config, *(a.astype(np.float64) for a in arrays))
    (result,) = given(einsum(config, shapes, expected.shape), *arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def einsum(config: str, shapes: Sequence[Sequence[int]], result: Sequence[int]) -> str:
    types = [type_of(shape) for shape in shapes]
    parameters = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    operands = ", ".join(f"%a{i}" for i in range(len(types)))
    name = "einsum" if len(types) == 2 else "unary_einsum"
    return f"""func.func @main({parameters}) -> {type_of(result)} {{
      %0 = "stablehlo.{name}"({operands}) {{einsum_config = "{config}"}} : ({", ".join(types)}) -> {type_of(result)}
      return %0 : {type_of(result)}
    }}"""


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("ij,jk", "-> before that of the result"),
        ("ijl,jk->ik", "more or fewer labels"),
        ("ij,jk->iz", "labels that no operand has"),
        ("ii,jk->ik", "diagonal of dimensions that differ"),
        ("ij,kl->il", ""),
    ],
)
def test_einsum_refused(config: str, why: str) -> None:
    """The last one is none: labels of one operand alone are summed over."""
    text = einsum(config, [(2, 3), (3, 4)], (2, 4))
    if not why:
        sx.compile(text)
        return
    with pytest.raises(sx.VerificationError, match=why):
        sx.compile(text)


# ---- CHLO ------------------------------------------------------------------------------------------------------------


def test_scan_of_complex_numbers_in_reverse() -> None:
    text = """func.func @main(%x: tensor<2x5xcomplex<f32>>, %i: tensor<2xcomplex<f32>>)
        -> (tensor<2x5xcomplex<f32>>, tensor<2xcomplex<f32>>) {
      %0:2 = chlo.scan(%x) inits(%i) dimension=1 attributes {is_reverse = true} {
      ^bb0(%a: tensor<2xcomplex<f32>>, %c: tensor<2xcomplex<f32>>):
        %1 = stablehlo.add %a, %c : tensor<2xcomplex<f32>>
        stablehlo.return %1, %1 : tensor<2xcomplex<f32>>, tensor<2xcomplex<f32>>
      } : (tensor<2x5xcomplex<f32>>, tensor<2xcomplex<f32>>) -> (tensor<2x5xcomplex<f32>>, tensor<2xcomplex<f32>>)
      return %0#0, %0#1 : tensor<2x5xcomplex<f32>>, tensor<2xcomplex<f32>>
    }"""
    x = (np.arange(10).reshape(2, 5) * (1 - 2j)).astype(np.complex64)
    init = np.array([1, 2j], np.complex64)
    sums = np.cumsum(x[:, ::-1], 1)[:, ::-1] + init[:, None]
    equal(text, [x, init], [sums, sums[:, 0]])


@pytest.mark.parametrize("extent", [0, 1, 6])
def test_scan_of_several_arrays(extent: int) -> None:
    """Running maxima and where they stood; the carry is another one than the outputs."""
    row, number = f"tensor<{extent}xi32>", "tensor<i32>"
    text = f"""func.func @main(%x: {row}, %n: {row}, %i: {number}, %j: {number}) -> ({row}, {number}, {number}) {{
      %0:3 = chlo.scan(%x, %n) inits(%i, %j) dimension=0 {{
      ^bb0(%x0: {number}, %n0: {number}, %best: {number}, %at: {number}):
        %more = stablehlo.compare GT, %x0, %best : ({number}, {number}) -> tensor<i1>
        %b = stablehlo.select %more, %x0, %best : tensor<i1>, {number}
        %a = stablehlo.select %more, %n0, %at : tensor<i1>, {number}
        %o = stablehlo.multiply %b, %a : {number}
        stablehlo.return %o, %b, %a : {number}, {number}, {number}
      }} : ({row}, {row}, {number}, {number}) -> ({row}, {number}, {number})
      return %0#0, %0#1, %0#2 : {row}, {number}, {number}
    }}"""
    x, places = np.int32([3, 1, 4, 1, 5, 9])[:extent], np.arange(extent, dtype=np.int32)
    best, at, outputs = -1, -7, []
    for place, value in enumerate(x):
        best, at = (int(value), place) if value > best else (best, at)
        outputs.append(best * at)
    equal(text, [x, places, np.int32(-1), np.int32(-7)], [np.array(outputs, np.int32), best, at])


@pytest.mark.parametrize("name", ["TopK", "mhlo.topk"])
def test_top_k_as_a_custom_call(name: str) -> None:
    """Against XLA:CPU's own operation."""
    text = f"""func.func @main(%x: tensor<2x9xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {{
      %0:2 = stablehlo.custom_call @{name}(%x) : (tensor<2x9xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
      return %0#0, %0#1 : tensor<2x3xf32>, tensor<2x3xi32>
    }}"""
    x = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5], [0, -0.0, np.nan, np.inf, -1, 1, 1, np.inf, 2]], F32)
    with jax.enable_x64(False):
        equal(text, [x], [np.asarray(v) for v in lax.top_k(x, 3)])


@pytest.mark.parametrize("compared", ["LT, %a, %b", "GT, %b, %a"])
def test_smallest_k_as_a_custom_call(compared: str) -> None:
    text = """func.func @main(%x: tensor<5xi32>) -> (tensor<3xi32>, tensor<3xi32>) {
      %0:2 = stablehlo.custom_call @TopK(%x) {called_computations = [@less]}
          : (tensor<5xi32>) -> (tensor<3xi32>, tensor<3xi32>)
      return %0#0, %0#1 : tensor<3xi32>, tensor<3xi32>
    }
    func.func private @less(%a: tensor<i32>, %b: tensor<i32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
      %0 = stablehlo.compare COMPARED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %0 : tensor<i1>
    }""".replace("COMPARED", compared)
    equal(text, [np.int32([3, 1, 4, 1, 5])], [np.int32([1, 1, 3]), np.int32([1, 3, 0])])


def test_a_comparator_that_is_not_read_is_refused() -> None:
    """By negated elements the larger one comes last; nothing is guessed."""
    text = """func.func @main(%x: tensor<5xi32>) -> (tensor<3xi32>, tensor<3xi32>) {
      %0:2 = stablehlo.custom_call @TopK(%x) {called_computations = [@turned]}
          : (tensor<5xi32>) -> (tensor<3xi32>, tensor<3xi32>)
      return %0#0, %0#1 : tensor<3xi32>, tensor<3xi32>
    }
    func.func private @turned(%a: tensor<i32>, %b: tensor<i32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
      %0 = stablehlo.negate %a : tensor<i32>
      %1 = stablehlo.negate %b : tensor<i32>
      %2 = stablehlo.compare GT, %0, %1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
      return %2 : tensor<i1>
    }"""
    with pytest.raises(sx.UnsupportedError, match="the first two arguments must be compared, by GT or LT"):
        sx.compile(text)


def test_broadcast_select() -> None:
    """Each of the three is stretched by itself."""
    text = """func.func @main(%p: tensor<2x1x1xi1>, %x: tensor<3xf32>, %y: tensor<1x4x1xf32>) -> tensor<2x4x3xf32> {
      %0 = chlo.broadcast_select %p, %x, %y : (tensor<2x1x1xi1>, tensor<3xf32>, tensor<1x4x1xf32>) -> tensor<2x4x3xf32>
      return %0 : tensor<2x4x3xf32>
    }"""
    p = np.array([True, False]).reshape(2, 1, 1)
    x, y = np.arange(3, dtype=F32), -np.arange(4, dtype=F32).reshape(1, 4, 1)
    equal(text, [p, x, y], [np.where(p, x, y)])


@pytest.mark.parametrize("kind", ["i8", "i32", "i64", "ui16", "ui64"])
def test_upper_half_of_a_product(kind: str) -> None:
    """CHLO's operation and MHLO's call, against Python's integers."""
    array = f"tensor<5x{kind}>"
    text = f"""func.func @main(%x: {array}, %y: {array}) -> ({array}, {array}) {{
      %0 = chlo.mulhi %x, %y : {array}, {array} -> {array}
      %1 = stablehlo.custom_call @mhlo.mulhi(%x, %y) : ({array}, {array}) -> {array}
      return %0, %1 : {array}, {array}
    }}"""
    dtype = np.dtype(kind.replace("ui", "uint") if kind.startswith("u") else kind.replace("i", "int"))
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, limits.min, limits.max, 3], dtype)
    y = np.array([limits.min, limits.max, limits.max, 2, 5], dtype)
    expected = np.array([int(a) * int(b) >> limits.bits for a, b in zip(x, y, strict=True)], dtype)
    equal(text, [x, y], [expected, expected])


RAGGED = [
    ("mk", "gkn", "mn", ""),
    ("bmk", "gbkn", "bmn", "b"),
    ("xmk", "gkn", "xmn", "x"),
    ("mxk", "gkn", "mxn", ""),
    ("bmxk", "gbkn", "bmxn", "b"),
    ("bxmk", "gbkn", "bxmn", "bx"),
    ("bmk", "bkn", "gbmn", "b"),
    ("xkm", "nk", "gxmn", ""),
]


@pytest.mark.parametrize(("lhs", "rhs", "result", "prefix"), RAGGED)
def test_ragged_dot(lhs: str, rhs: str, result: str, prefix: str) -> None:
    """By a sum over labels in numpy; without a group dimension on the right, the contracted one is ragged."""
    extents = dict(zip("bxmkngr", (2, 3, 7, 5, 4, 3, 7), strict=True))
    shapes = [[extents[label] for label in labels] for labels in (lhs, rhs, f"{prefix}g", result)]
    along = "m" if "g" in rhs else "k"
    x, w = (GENERATOR.integers(-4, 5, shape).astype(F32) for shape in shapes[:2])
    sizes = GENERATOR.multinomial(extents[along] - 1, [0.3, 0.3, 0.4], shapes[2][:-1] or None).astype(np.int32)
    ends = np.cumsum(sizes, -1)[..., None, :]
    places = np.arange(extents[along])[:, None]
    mask = ((places >= ends - sizes[..., None, :]) & (places < ends)).astype(F32)
    expected = np.einsum(f"{lhs},{prefix}{along}g,{rhs}->{result}", x, mask, w)
    numbers = {
        "lhs_batching": lhs.index("b") if "b" in rhs else None,
        "rhs_batching": rhs.index("b") if "b" in rhs else None,
        "lhs_contracting": lhs.index("k"),
        "rhs_contracting": rhs.index("k"),
        "lhs_ragged": lhs.index(along),
        "rhs_group": rhs.index("g") if "g" in rhs else None,
    }
    written = ", ".join(f"{name}_dimensions = [{'' if n is None else n}]" for name, n in numbers.items())
    types = [type_of(shapes[0]), type_of(shapes[1]), type_of(shapes[2], "i32")]
    text = f"""func.func @main(%x: {types[0]}, %w: {types[1]}, %n: {types[2]}) -> {type_of(shapes[3])} {{
      %0 = "chlo.ragged_dot"(%x, %w, %n) {{precision_config = [],
        ragged_dot_dimension_numbers = #chlo.ragged_dot<{written}>}} : ({", ".join(types)}) -> {type_of(shapes[3])}
      return %0 : {type_of(shapes[3])}
    }}"""
    equal(text, [x, w, sizes], [expected])


def test_ragged_dot_with_rows_of_no_group() -> None:
    """Rows of a group are multiplied by the group's matrix; those of none are 0."""
    text = """func.func @main(%x: tensor<6x3xf32>, %w: tensor<2x3x5xf32>, %n: tensor<2xi32>) -> tensor<6x5xf32> {
      %0 = "chlo.ragged_dot"(%x, %w, %n) {precision_config = [], ragged_dot_dimension_numbers = #chlo.ragged_dot<
        lhs_batching_dimensions = [], rhs_batching_dimensions = [], lhs_contracting_dimensions = [1],
        rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>
      } : (tensor<6x3xf32>, tensor<2x3x5xf32>, tensor<2xi32>) -> tensor<6x5xf32>
      return %0 : tensor<6x5xf32>
    }"""
    x, w = (GENERATOR.integers(-4, 5, shape).astype(F32) for shape in ((6, 3), (2, 3, 5)))
    expected = np.concatenate([x[:1] @ w[0], x[1:4] @ w[1], np.zeros((2, 5), F32)])
    equal(text, [x, w, np.int32([1, 3])], [expected])


# ---- assertions ------------------------------------------------------------------------------------------------------


ASSERTIONS = {
    "custom call": """stablehlo.custom_call @shape_assertion(%c, %n) {error_message = "expected n < 3, but n = {0}",
        has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()""",
    "assert": """%p = tensor.extract %c[] : tensor<i1>
      cf.assert %p, "expected n < 3, but n = 5" """,
    "constraint": """%p = tensor.extract %c[] : tensor<i1>
      %w = shape.cstr_require %p, "expected n < 3, but n = 5"
      shape.assuming %w { shape.assuming_yield }""",
}


@pytest.mark.parametrize("kind", ASSERTIONS)
def test_assertion_on_a_value(kind: str) -> None:
    """It is checked in every call; after one that fails, the program is as good as before."""
    text = f"""func.func @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {{
      %z = stablehlo.constant dense<3> : tensor<i32>
      %c = stablehlo.compare LT, %n, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
      {ASSERTIONS[kind]}
      %y = stablehlo.negate %x : tensor<4xf32>
      return %y : tensor<4xf32>
    }}"""
    program, x = sx.compile(text), np.arange(4, dtype=F32)
    for number in (2, 5, -1):
        if number == 5:
            with pytest.raises(sx.ExecutionError, match="expected n < 3, but n = 5"):
                program(x, np.int32(number))
        else:
            np.testing.assert_array_equal(program(x, np.int32(number)), -x)


# ---- dynamic operations with static results --------------------------------------------------------------------------


def dynamic(operation: str, types: Sequence[str], result: str) -> str:
    """A program of one operation on its parameters, whose last part in brackets are attributes."""
    parameters = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    operands = ", ".join(f"%a{i}" for i in range(len(types)))
    name, _, attributes = operation.partition(" ")
    return f"""func.func @main({parameters}) -> {result} {{
      %0 = "stablehlo.{name}"({operands}) {{{attributes}}} : ({", ".join(types)}) -> {result}
      return %0 : {result}
    }}"""


GATHER = "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], \
index_vector_dim = 1>, indices_are_sorted = false"
CONVOLUTION = "batch_group_count = 1 : i64, feature_group_count = 1 : i64, window_strides = array<i64: 2, 2>, \
lhs_dilation = array<i64: 1, 2>, rhs_dilation = array<i64: 2, 1>, \
dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>"


def convolution(x: Any, kernel: Any, padding: Any) -> Any:
    pairs = [(int(low), int(high)) for low, high in padding]
    return lax.conv_general_dilated(
        x, kernel, (2, 2), pairs, (1, 2), (2, 1), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def integers(*values: Any) -> Any:
    return np.array(values, np.int32)


DYNAMIC: list[tuple[str, list[Any], Callable[..., Any]]] = [
    (
        "dynamic_broadcast_in_dim broadcast_dimensions = array<i64: 1>",
        [np.arange(3, dtype=F32), integers(2, 3)],
        lambda x, _: np.broadcast_to(x, (2, 3)),
    ),
    (
        "dynamic_iota iota_dimension = 1 : i64",
        [integers(2, 3)],
        lambda _: np.broadcast_to(np.arange(3, dtype=F32), (2, 3)),
    ),
    ("dynamic_reshape", [np.arange(6, dtype=F32), integers(2, 3)], lambda x, _: x.reshape(2, 3)),
    (
        "real_dynamic_slice",
        [np.arange(48, dtype=F32).reshape(8, 6), integers(1, 3), integers(6, 5), integers(2, 1)],
        lambda x, low, high, step: x[low[0] : high[0] : step[0], low[1] : high[1] : step[1]],
    ),
    (
        "dynamic_pad",
        [np.arange(1, 7, dtype=F32).reshape(3, 2), F32(9), integers(1, -1), integers(-1, 2), integers(1, 2)],
        lambda x, value, *numbers: lax.pad(x, value, [tuple(map(int, n)) for n in zip(*numbers, strict=True)]),
    ),
    (
        f"dynamic_gather {GATHER}",
        [np.arange(15, dtype=F32).reshape(5, 3), integers([0], [4], [2], [2]), integers(1, 3)],
        lambda x, places, _: x[places[:, 0]],
    ),
    (
        f"dynamic_conv {CONVOLUTION}",
        [
            np.arange(30, dtype=F32).reshape(1, 6, 5, 1),
            np.arange(18, dtype=F32).reshape(3, 3, 1, 2),
            integers([1, 1], [0, 2]),
        ],
        convolution,
    ),
]


@pytest.mark.parametrize(("operation", "arrays", "reference"), DYNAMIC, ids=lambda case: str(case)[:18])
def test_dynamic_operation(operation: str, arrays: list[Any], reference: Callable[..., Any]) -> None:
    """What it is made by are arguments; numpy or XLA:CPU computes the static operation."""
    expected = np.asarray(reference(*arrays))
    types = [type_of(np.shape(a), "i32" if np.asarray(a).dtype == np.int32 else "f32") for a in arrays]
    equal(dynamic(operation, types, type_of(expected.shape)), arrays, [expected])


def test_dynamic_slice_in_a_loop() -> None:
    """As decompositions leave it there: the start is the counter, the limit the counter plus one."""
    text = """func.func @main(%x: tensor<5x3xf32>) -> tensor<3xf32> {
      %zero = stablehlo.constant dense<0> : tensor<i64>
      %one = stablehlo.constant dense<1> : tensor<i64>
      %end = stablehlo.constant dense<5> : tensor<i64>
      %steps = stablehlo.constant dense<1> : tensor<2xi64>
      %width = stablehlo.constant dense<3> : tensor<1xi64>
      %none = stablehlo.constant dense<0> : tensor<1xi64>
      %start = stablehlo.constant dense<0.0> : tensor<3xf32>
      %0:2 = stablehlo.while(%i = %zero, %s = %start) : tensor<i64>, tensor<3xf32>
      cond {
        %c = stablehlo.compare LT, %i, %end : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      } do {
        %next = stablehlo.add %i, %one : tensor<i64>
        %a = stablehlo.reshape %i : (tensor<i64>) -> tensor<1xi64>
        %b = stablehlo.reshape %next : (tensor<i64>) -> tensor<1xi64>
        %low = stablehlo.concatenate %a, %none, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
        %high = stablehlo.concatenate %b, %width, dim = 0 : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
        %row = stablehlo.real_dynamic_slice %x, %low, %high, %steps
            : (tensor<5x3xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<1x3xf32>
        %r = stablehlo.reshape %row : (tensor<1x3xf32>) -> tensor<3xf32>
        %t = stablehlo.add %s, %r : tensor<3xf32>
        stablehlo.return %next, %t : tensor<i64>, tensor<3xf32>
      }
      return %0#1 : tensor<3xf32>
    }"""
    x = np.arange(15, dtype=F32).reshape(5, 3)
    equal(text, [x], [x.sum(0)])


# ---- random bits and algorithms --------------------------------------------------------------------------------------


def random_bits(algorithm: str, state: str) -> str:
    return f"""func.func @main(%s: {state}) -> ({state}, tensor<6xui32>) {{
      %0:2 = "stablehlo.rng_bit_generator"(%s) {{rng_algorithm = #stablehlo<rng_algorithm {algorithm}>}}
          : ({state}) -> ({state}, tensor<6xui32>)
      return %0#0, %0#1 : {state}, tensor<6xui32>
    }}"""


@pytest.mark.parametrize(("algorithm", "count"), [("DEFAULT", 2), ("PHILOX", 2), ("PHILOX", 3), ("THREE_FRY", 2)])
def test_state_of_words(algorithm: str, count: int) -> None:
    """As XLA:CPU's with the same bits as numbers of 64 bits; the counter's lower word overflows."""
    words = np.array([1, 2, 2**32 - 1, 2**32 - 1, 5, 6], np.uint32)[: 2 * count]
    after, bits = xla(random_bits(algorithm, f"tensor<{count}xui64>"), [words.view(np.uint64)])
    equal(random_bits(algorithm, f"tensor<{2 * count}xui32>"), [words], [after.view(np.uint32), bits])


@pytest.mark.parametrize(("state", "algorithm"), [("2xui32", "PHILOX"), ("8xui32", "DEFAULT"), ("6xui32", "THREE_FRY")])
def test_state_of_another_size(state: str, algorithm: str) -> None:
    with pytest.raises(sx.UnsupportedError, match="integers of 64 bits, or twice as many of u32"):
        sx.compile(random_bits(algorithm, f"tensor<{state}>"))


def product(element: str, result: str, precision: str, count: int) -> str:
    types = f"tensor<2x3x{element}>, tensor<3x2x{element}>"
    return f"""func.func @main(%a: tensor<2x3x{element}>, %b: tensor<3x2x{element}>) -> tensor<2x2x{result}> {{
      %0 = "stablehlo.dot_general"(%a, %b) {{
        dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>,
        precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>],
        algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {precision}, rhs_precision_type = {precision},
          accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,
          num_primitive_operations = {count}, allow_imprecise_accumulation = false>
      }} : ({types}) -> tensor<2x2x{result}>
      return %0 : tensor<2x2x{result}>
    }}"""


@pytest.mark.parametrize(
    ("element", "result", "precision", "count"),
    [("i32", "i32", "tf32", 1), ("i64", "i64", "tf32", 3), ("i8", "i8", "bf16", 3), ("i16", "i32", "f32", 1)],
)
def test_algorithm_of_floats_on_integers(element: str, result: str, precision: str, count: int) -> None:
    """Products of integers stay exact, as XLA:CPU's; f32 would not hold these."""
    a, b = (GENERATOR.integers(-(2**30), 2**30, shape).astype(f"int{element[1:]}") for shape in ((2, 3), (3, 2)))
    text = product(element, result, precision, count)
    equal(text, [a, b], xla(text, [a, b]))
    equal(text, [a, b], [a.astype(f"int{result[1:]}") @ b.astype(f"int{result[1:]}")])


@pytest.mark.parametrize("element", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16])
def test_algorithm_of_components_on_small_floats(element: Any) -> None:
    """bf16 and f8 are one component; an f16 is two, and of their products three of four are taken."""
    a, b = (GENERATOR.standard_normal(shape).astype(element) for shape in ((2, 3), (3, 2)))
    name = {"bfloat16": "bf16", "float8_e5m2": "f8E5M2", "float16": "f16"}[np.dtype(element).name]
    (result,) = given(product(name, "f32", "bf16", 3), a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    most = 2**-15 if element is np.float16 else 2**-22
    assert (abs(result - a @ b) <= most * (abs(a) @ abs(b))).all()


def test_mhlo_is_read_after_hlo_of_this_process():
    """A trusted program of HLO makes MHLO known to the context; a text of it is turned into StableHLO all the same."""
    hlo = "HloModule m\n\nENTRY e {\n  ROOT %x = f32[2] parameter(0)\n}"
    sx.load(hlo, trusted=True)
    text = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = mhlo.negate %x : tensor<2xf32>
      return %0 : tensor<2xf32>
    }"""
    assert "stablehlo.negate" in str(sx.load(text))
