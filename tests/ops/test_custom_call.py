"""Custom calls by C functions and by Python functions. What they compute is known here; numpy is the oracle."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.custom_calls import OF_THIS_PROCESS
from stablexla.targets.pipeline.knobs import knobs
from tests.comparison import assert_same
from tests.ops.samples import sample
from tests.programs import general_only
from tests.versions import needs_stablehlo

TARGET = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
ELEMENT_TYPES = [t.name for t in sx.ELEMENT_TYPES]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of a test are gone after it, and those from elsewhere unknown to it."""
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)


def executable(make: Callable[..., Any], *shapes: sx.Shape, options: sx.CompileOptions | None = None) -> sx.Executable:
    b = sx.XlaBuilder("test")
    root = make(*(b.parameter(i, shape) for i, shape in enumerate(shapes)))
    return sx.compile(b.build(sx.tuple(root) if isinstance(root, list | tuple) else root), options=options)


def floats(address: Any, *shape: int) -> np.ndarray:
    """The floats at an address, for targets that are written in Python and called from C."""
    pointer = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(pointer, shape)


# ---- C functions -----------------------------------------------------------------------------------------------------

EXAMPLE = """
extern "C" void myfunc(void* out, void** in) {
  float (&x)[2] = *static_cast<float(*)[2]>(in[0]);
  float (&y)[2][3] = *static_cast<float(*)[2][3]>(in[1]);
  float (&z)[3][3] = *static_cast<float(*)[3][3]>(out);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) z[i][j] = 0;
  z[0][0] = x[1] + y[1][0];
  z[1][2] = x[0] + y[0][2];
}
"""


def check_example() -> None:
    """The operation semantics' program: x and y are constants, the result is f32[3,3]."""
    b = sx.XlaBuilder("example")
    x = b.constant(np.array([1, 2], np.float32))
    y = b.constant(np.array([[10, 20, 30], [40, 50, 60]], np.float32))
    result = sx.compile(b.build(sx.custom_call("myfunc", (x, y), sx.f32[3, 3])))()
    wanted = np.zeros((3, 3), np.float32)
    wanted[0, 0], wanted[1, 2] = 2 + 40, 1 + 30
    assert_same(result, wanted)


def test_the_specifications_example_in_cpp(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "myfunc.cpp").write_text(EXAMPLE)
    library = tmp_path / "myfunc.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "myfunc.cpp"], check=True)
    sx.register_custom_call("myfunc", ctypes.CDLL(str(library)).myfunc)
    check_example()


def test_the_specifications_example_by_a_pointer() -> None:
    @TARGET
    def myfunc(out: Any, operands: Any) -> None:
        x, y, z = floats(operands[0], 2), floats(operands[1], 2, 3), floats(out, 3, 3)
        assert x.tolist() == [1, 2]
        assert y.tolist() == [[10, 20, 30], [40, 50, 60]]
        z[:] = 0
        z[0, 0], z[1, 2] = x[1] + y[1, 0], x[0] + y[0, 2]

    sx.register_custom_call("myfunc", myfunc)
    check_example()


@TARGET
def halves(out: Any, operands: Any) -> None:
    results = ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))
    x = floats(operands[0], 4)
    floats(results[0], 2)[:] = x[:2]
    floats(results[1], 2)[:] = x[2:]


@TARGET
def increase(out: Any, operands: Any) -> None:
    floats(out, 3)[:] += 1


X4 = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize("form", ["pointer", "integer", "capsule"])
def test_tuples_and_the_forms_of_an_address(form: str) -> None:
    address = ctypes.cast(halves, ctypes.c_void_p).value
    if form == "capsule":
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        sx.register_custom_call("halves", new(address, None, None))
    else:
        sx.register_custom_call("halves", halves if form == "pointer" else address)
    shape = sx.Shape.tuple((sx.f32[2], sx.f32[2]))
    low, high = executable(lambda x: sx.custom_call("halves", x + 1, shape), sx.f32[4])(X4)
    assert_same(low, X4[:2] + 1)
    assert_same(high, X4[2:] + 1)


def test_a_tuple_of_one_has_a_list_of_one_address() -> None:
    @TARGET
    def copy(out: Any, operands: Any) -> None:
        floats(ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0], 4)[:] = floats(operands[0], 4)

    sx.register_custom_call("copy", copy)
    (result,) = executable(lambda x: sx.custom_call("copy", x, sx.Shape.tuple((sx.f32[4],))), sx.f32[4])(X4)
    assert_same(result, X4)


def test_aliased_results_hold_the_argument() -> None:
    sx.register_custom_call("increase", increase)
    aliases = ((0, 0),)
    x = np.array([1, 2, 3], np.float32)
    run = executable(
        lambda x: (sx.custom_call("increase", x, sx.f32[3], output_operand_aliasing=aliases), x), sx.f32[3]
    )
    assert_same(run(x)[0], x + 1)
    assert_same(run(x)[1], x)
    own = executable(lambda x: sx.custom_call("increase", x * 2, sx.f32[3], output_operand_aliasing=aliases), sx.f32[3])
    assert_same(own(x), x * 2 + 1)


def test_c_functions_know_the_original_way_of_calling_alone() -> None:
    sx.register_custom_call("increase", increase)
    with pytest.raises(sx.UnsupportedError, match="API_VERSION_ORIGINAL") as raised:
        executable(
            lambda x: sx.custom_call("increase", x, sx.f32[3], api_version="API_VERSION_STATUS_RETURNING"), sx.f32[3]
        )
    assert "test_custom_call.py" in str(raised.value)


# ---- Python functions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ELEMENT_TYPES)
def test_every_element_type_passes_through(name: str) -> None:
    seen = []

    def swap(scalar: np.ndarray, array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        seen.append((scalar.shape, scalar.dtype, array.flags.writeable))
        return array.copy(), scalar.copy()

    sx.register_custom_call("swap", swap)
    with np.errstate(invalid="ignore"):
        array = sample(name, 6).reshape(2, 3)
    scalar = array[1, 1]
    shapes = sx.Shape(name, ()), sx.Shape(name, (2, 3))
    run = executable(lambda s, a: sx.custom_call("swap", (s, a), sx.Shape.tuple(shapes[::-1])), *shapes)
    first, second = run(scalar, array)
    assert_same(first, array)
    assert_same(second, np.asarray(scalar))
    assert seen == [((), array.dtype, False)]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 2, 1, 3, 1, 2)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    sx.register_custom_call("twice", lambda x: np.asarray(x * 2, np.float32))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    run = executable(lambda x: sx.custom_call("twice", x + 1, sx.Shape("f32", shape)) - 1, sx.Shape("f32", shape))
    assert_same(run(x), (x + 1) * 2 - 1)


def test_on_the_general_path_too() -> None:
    sx.register_custom_call("twice", lambda x: x * 2)
    run = executable(lambda x: sx.custom_call("twice", x + 1, sx.f32[4]), sx.f32[4], options=general_only())
    assert_same(run(X4), (X4 + 1) * 2)


@pytest.mark.skipif(knobs.guard is not None, reason="runs under guard copy their arguments")
def test_what_is_given_is_no_copy() -> None:
    places = []

    def look(x: np.ndarray) -> np.ndarray:
        places.append(x.__array_interface__["data"])
        with pytest.raises(ValueError, match="WRITEABLE"):
            x.flags.writeable = True
        return x

    sx.register_custom_call("look", look)
    x = X4.copy()
    assert_same(executable(lambda x: sx.custom_call("look", x, sx.f32[4]), sx.f32[4])(x), x)
    assert places == [(x.__array_interface__["data"][0], True)]


def test_opaque_and_attributes_come_by_keyword() -> None:
    seen = []
    sx.register_custom_call("note", lambda x, **named: (seen.append(named), x)[1])
    executable(lambda x: sx.custom_call("note", x, sx.f32[4], 'a "text"'), sx.f32[4])(X4)
    typed = {"axis": 1, "mode": "sum", "flag": True}
    executable(lambda x: sx.custom_call("note", x, sx.f32[4], typed, api_version="API_VERSION_TYPED_FFI"), sx.f32[4])(
        X4
    )
    assert seen == [{"opaque": 'a "text"'}, typed]


def test_nothing_goes_in_or_comes_out() -> None:
    calls: list[int] = []
    sx.register_custom_call("five", lambda: np.int32(5))
    sx.register_custom_call("note", lambda: calls.append(len(calls)))
    b = sx.XlaBuilder("test")
    five = b.custom_call("five", (), sx.s32[()])
    b.custom_call("note", (), sx.Shape.tuple(()), has_side_effect=True)
    run = sx.compile(b.build(five * 2))
    assert run() == 10
    assert run() == 10
    assert calls == [0, 1]


def test_side_effects_happen_in_order_and_pure_calls_only_when_used() -> None:
    seen: list[str] = []

    def note(x: np.ndarray, opaque: str) -> np.ndarray:
        seen.append(opaque)
        return x

    sx.register_custom_call("note", note)

    def program(x: sx.XlaOp) -> sx.XlaOp:
        sx.custom_call("note", x, sx.f32[4], "pure")
        for name in "abc":
            sx.custom_call("note", x, sx.f32[4], name, has_side_effect=True)
        sx.custom_call("note", x, sx.f32[4], "a", has_side_effect=True)
        return x

    executable(program, sx.f32[4])(X4)
    assert seen == ["a", "b", "c", "a"]


def test_in_loops_and_branches() -> None:
    seen: list[float] = []
    sx.register_custom_call("note", lambda x: (seen.append(float(x.sum())), x + 1)[1])

    def body(state: sx.XlaOp) -> list[sx.XlaOp]:
        i, x = state
        x = sx.conditional(
            i < 2, x, lambda x: sx.custom_call("note", x, sx.f32[2], has_side_effect=True), x, lambda x: x * 10
        )
        return [i + 1, x]

    run = executable(lambda i, x: sx.while_(lambda s: s[0] < 4, body, sx.tuple((i, x))), sx.s32[()], sx.f32[2])
    count, result = run(0, np.zeros(2, np.float32))
    assert count == 4
    assert_same(result, np.full(2, 200, np.float32))
    assert seen == [0, 2]


def test_tokens_are_not_passed() -> None:
    sx.register_custom_call("twice", lambda x: x * 2)

    def program(x: sx.XlaOp) -> sx.XlaOp:
        shape = sx.Shape.tuple((sx.Shape.token(), sx.f32[4]))
        token, y = sx.custom_call("twice", (x.builder.create_token(), x), shape, has_side_effect=True)
        return sx.tuple((y, sx.after_all(token)))

    (result,) = executable(program, sx.f32[4])(X4)
    assert_same(result, X4 * 2)


def test_notes_to_partitioners_do_nothing() -> None:
    run = executable(lambda x: sx.custom_call("Sharding", x, sx.f32[4], "{replicated}"), sx.f32[4])
    assert_same(run(X4), X4)


# ---- tuples, layouts, computations -----------------------------------------------------------------------------------

NESTED = sx.Shape.parse("(f32[4], (s32[], (f32[2,2])))")


def test_python_functions_take_and_give_tuples_of_tuples() -> None:
    seen = []

    def mix(given: Any, x: np.ndarray) -> Any:
        first, (count, (square,)) = given
        seen.append((first.shape, count.shape, square.shape))
        return first + x, [count + 1, (square * 2,)]

    sx.register_custom_call("mix", mix)
    arguments = (X4, (np.int32(3), (np.ones((2, 2), np.float32),)))
    run = executable(lambda p, x: sx.custom_call("mix", (p, x), NESTED), NESTED, sx.f32[4])
    first, (count, (square,)) = run(arguments, X4)
    assert_same(first, X4 * 2)
    assert count == 4
    assert_same(square, np.full((2, 2), 2, np.float32))
    assert seen == [((4,), (), (2, 2))]


def test_c_functions_get_lists_of_addresses_for_tuples() -> None:
    """Of the arguments' tuples and of the result's, each again a list in the one around it."""

    @TARGET
    def mix(out: Any, operands: Any) -> None:
        lists = ctypes.POINTER(ctypes.c_void_p)
        given, wanted = ctypes.cast(operands[0], lists), ctypes.cast(out, lists)
        inner, results = ctypes.cast(given[1], lists), ctypes.cast(wanted[1], lists)
        square = floats(ctypes.cast(inner[1], lists)[0], 2, 2)
        floats(wanted[0], 4)[:] = floats(given[0], 4) + floats(operands[1], 4)
        ctypes.cast(results[0], ctypes.POINTER(ctypes.c_int32))[0] = 7
        floats(ctypes.cast(results[1], lists)[0], 2, 2)[:] = square * 2

    sx.register_custom_call("mix", mix)
    arguments = (X4, (np.int32(3), (np.ones((2, 2), np.float32),)))
    run = executable(lambda p, x: sx.custom_call("mix", (p, x), NESTED), NESTED, sx.f32[4])
    first, (count, (square,)) = run(arguments, X4)
    assert_same(first, X4 * 2)
    assert count == 7
    assert_same(square, np.full((2, 2), 2, np.float32))


def test_aliases_and_tokens_inside_of_tuples() -> None:
    shape = sx.Shape.parse("(token, (f32[4], (f32[4])))")
    sx.register_custom_call("second", lambda pair: (((pair[0], (pair[0] + pair[1][0],)),),))

    def program(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        pair = sx.tuple((x.builder.create_token(), x, sx.tuple((y,))))
        made = sx.custom_call(
            "second", (pair,), sx.Shape.tuple((shape,)), output_operand_aliasing=[((0, 1, 0), (0, 1))]
        )
        return made[0][1]

    first, (second,) = executable(program, sx.f32[4], sx.f32[4])(X4, X4 + 1)
    assert_same(first, X4)
    assert_same(second, X4 * 2 + 1)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x: x, "the result of custom call 'f' must be a tuple of 2, .*, but it is a ndarray"),
        (lambda x: (x, x, x), "but it is a tuple of 3"),
        (lambda x: (x, (x, x)), r"element 1 of the result of custom call 'f' must be a tuple of 1, \(f32\[4\]\)"),
        (lambda x: (x, (x[:2],)), r"result 1 of custom call 'f' takes float32\[4\]"),
    ],
)
def test_wrong_tuples(made: Callable[[np.ndarray], object], message: str) -> None:
    sx.register_custom_call("f", made)
    run = executable(lambda x: sx.custom_call("f", x, sx.Shape.parse("(f32[4], (f32[4]))")), sx.f32[4])
    with pytest.raises(sx.ExecutionError, match=message):
        run(X4)


def test_layouts_of_the_builder() -> None:
    """A C function that copies memory: between two layouts it transposes; a Python function sees none of it."""

    @TARGET
    def copy(out: Any, operands: Any) -> None:
        floats(out, 6)[:] = floats(operands[0], 6)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for operand, result, wanted in (
        ("f32[2,3]{0,1}", "f32[3,2]", x.T),
        ("f32[2,3]{1,0}", "f32[3,2]{0,1}", x.T),
        ("f32[2,3]{0,1}", "f32[2,3]{0,1}", x),
        ("f32[2,3]", "f32[3,2]", x.reshape(3, 2)),
    ):
        make = lambda x, o=operand, r=result: sx.custom_call_with_layout("copy", x, r, [o])  # noqa: E731
        sx.register_custom_call("copy", copy)
        assert_same(executable(make, sx.f32[2, 3])(x), np.ascontiguousarray(wanted))
        if "3,2" in result:
            sx.register_custom_call("copy", lambda x: np.ascontiguousarray(x.T))
            assert_same(executable(make, sx.f32[2, 3])(x), np.ascontiguousarray(x.T))


def test_computations_of_the_builder() -> None:
    """A comparison, which says to the target of that name which elements are best."""
    x = np.random.default_rng(0).standard_normal((3, 20)).astype(np.float32)
    shape = sx.Shape.tuple((sx.f32[3, 4], sx.s32[3, 4]))
    for compare, order in ((sx.gt, np.argsort(-x, 1)), (sx.lt, np.argsort(x, 1))):
        c = sx.XlaBuilder("compare")
        a, b, *_ = (c.parameter(i, s) for i, s in enumerate([sx.f32[()], sx.f32[()], sx.s32[()], sx.s32[()]]))
        larger = c.build(compare(a, b))

        def program(x: sx.XlaOp, larger: sx.XlaComputation = larger) -> sx.XlaOp:
            worst, zero = x.builder.constant(0.0), x.builder.constant(0)
            config = {"reduction_dim": 1, "top_k": 4, "recall_target": 0.9}
            args = (x, x.builder.iota(sx.s32[3, 20], 1), worst, zero)
            return sx.custom_call_with_computation(
                "ApproxTopK", args, larger, shape, config, api_version="API_VERSION_TYPED_FFI"
            )

        values, places = executable(program, sx.f32[3, 20])(x)
        assert_same(places, order[:, :4].astype(np.int32))
        assert_same(values, np.take_along_axis(x, order[:, :4], 1))


def test_a_registered_function_does_not_get_the_computation() -> None:
    sx.register_custom_call("twice", lambda x: x * 2)
    c = sx.XlaBuilder("one")
    one = c.build(c.constant(1))
    make = lambda x: sx.custom_call_with_computation_and_layouts("twice", x, one, "f32[4]{0}", ["f32[4]{0}"])  # noqa: E731
    assert_same(executable(make, sx.f32[4])(X4), X4 * 2)


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_an_unknown_target_is_refused_at_compile_time() -> None:
    sx.register_custom_call("my_function", lambda x: x)
    sx.register_custom_call("other", lambda x: x)
    sx.register_custom_call(OF_THIS_PROCESS + "7", lambda x: x)  # nobody can call it by its name
    with pytest.raises(sx.CompileError) as raised:
        executable(lambda x: sx.custom_call("my_funktion", x, sx.f32[4]), sx.f32[4])
    message = str(raised.value)
    assert "there is no target 'my_funktion'; known are 'my_function', 'other'" in message
    assert "test_custom_call.py" in message
    assert "try: 'my_function'" in message
    assert "or a rule of your own, @sx.lowers('stablehlo.custom_call:my_funktion')" in message


def test_nothing_known() -> None:
    with pytest.raises(sx.CompileError, match="none is registered"):
        executable(lambda x: sx.custom_call("f", x, sx.f32[4]), sx.f32[4])


def test_inside_a_reducer() -> None:
    """It is called for each element, in their order."""
    calls: list[float] = []
    sx.register_custom_call("f", lambda a, c: calls.append(float(c)) or a + c)
    folded = executable(
        lambda x: sx.reduce(x, x.builder.constant(0.0), lambda a, c: sx.custom_call("f", (a, c), sx.f32[()]), (0,)),
        sx.f32[4],
    )
    assert folded(np.float32([1, 2, 4, 8])) == 15
    assert calls == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda x: x[:2], r"the result of custom call 'f' takes float32\[4\], but an array of float32\[2\] came"),
        (lambda x: x.astype(np.float64), r"takes float32\[4\], but an array of float64\[4\] came"),
        (lambda x: (x, x), r"custom call 'f' must return float32\[4\], but it returned 2 results"),
        (lambda x: (), "returned 0 results"),
        (lambda x: None, "a NoneType came"),
        (lambda x: "text", "a str came"),
    ],
)
def test_wrong_results(made: Callable[[np.ndarray], object], message: str) -> None:
    answers = [made, lambda x: x]
    sx.register_custom_call("f", lambda x: answers.pop(0)(x))
    run = executable(lambda x: sx.custom_call("f", x, sx.f32[4]), sx.f32[4])
    with pytest.raises(sx.ExecutionError, match=message):
        run(X4)
    assert_same(run(X4), X4)


def test_wrong_results_of_several() -> None:
    sx.register_custom_call("f", lambda x: (x, x[0]))
    run = executable(lambda x: sx.custom_call("f", x, sx.Shape.tuple((sx.f32[4], sx.s32[()]))), sx.f32[4])
    with pytest.raises(sx.ExecutionError, match="result 1 of custom call 'f' takes int32"):
        run(X4)


@pytest.mark.parametrize("given", [None, "text", 1.5, 0, True])
def test_what_is_no_function_is_not_registered(given: object) -> None:
    with pytest.raises(TypeError, match="neither a function nor the address of one"):
        sx.register_custom_call("f", given)
    with pytest.raises(TypeError, match="the name of a custom call"):
        sx.register_custom_call("", len)


def test_programs_keep_what_was_registered() -> None:
    sx.register_custom_call("f", lambda x: x + 1)
    run = executable(lambda x: sx.custom_call("f", x, sx.f32[4]), sx.f32[4])
    sx.register_custom_call("f", lambda x: x + 2)
    assert_same(run(X4), X4 + 1)
    assert_same(executable(lambda x: sx.custom_call("f", x, sx.f32[4]), sx.f32[4])(X4), X4 + 2)


# ---- layouts and aliases ---------------------------------------------------------------------------------------------


@needs_stablehlo("1.18")
def test_tiles_are_of_tpus() -> None:
    """A C function would have to write them; a Python function sees none of it."""

    @TARGET
    def copy(out: Any, operands: Any) -> None:
        floats(out, 16)[:] = floats(operands[0], 16)

    def program(tiles: str) -> str:
        return f"""func.func @main(%x: tensor<2x8xf32>) -> tensor<2x8xf32> {{
          %0 = stablehlo.custom_call @f(%x) {{operand_layouts = [dense<[1, 0]> : tensor<2xindex>],
            result_layouts = [dense<[1, 0]> : tensor<2xindex>], result_tilings = [[{tiles}]]}}
            : (tensor<2x8xf32>) -> tensor<2x8xf32>
          return %0 : tensor<2x8xf32>
        }}"""

    x, tiles = np.arange(16, dtype=np.float32).reshape(2, 8), "dense<[8, 128]> : tensor<2xindex>"
    sx.register_custom_call("f", copy)
    np.testing.assert_array_equal(sx.compile(program(""))(x), x)
    with pytest.raises(sx.UnsupportedError, match=r"result_tilings .* in no tiles here"):
        sx.compile(program(tiles))
    sx.register_custom_call("f", lambda x: x * 2)
    np.testing.assert_array_equal(sx.compile(program(tiles))(x), x * 2)


def with_layouts(operand: str, result: str, alias: str = "", version: int = 1) -> sx.Executable:
    """A call of `f` with an array of 2 by 3 by 4 floats in a layout, which gives one in another."""
    order = "tensor<3xindex>"
    aliases = (
        "#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>"
    )
    return sx.compile(f"""
      func.func @main(%x: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {{
        %r = stablehlo.custom_call @f(%x) {{
          api_version = {version} : i32,
          operand_layouts = [dense<{operand}> : {order}], result_layouts = [dense<{result}> : {order}],
          output_operand_aliases = [{aliases if alias else ""}]
        }} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
        return %r : tensor<2x3x4xf32>
      }}""")


X234 = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
# A layout lists the fastest dimension first: numpy's order of the dimensions in memory is the reverse.
LAYOUTS = {"[2, 1, 0]": (0, 1, 2), "[0, 1, 2]": (2, 1, 0), "[1, 2, 0]": (0, 2, 1), "[0, 2, 1]": (1, 2, 0)}


@pytest.mark.parametrize("result", LAYOUTS)
@pytest.mark.parametrize("operand", LAYOUTS)
def test_c_functions_find_the_layouts_that_are_asked_for(operand: str, result: str) -> None:
    """The function copies memory; numpy says what that does to arrays of the two layouts."""

    @TARGET
    def copy(out: Any, operands: Any) -> None:
        floats(out, 24)[:] = floats(operands[0], 24)

    sx.register_custom_call("f", copy)
    memory = X234.transpose(LAYOUTS[operand]).reshape(-1)
    axes = LAYOUTS[result]
    wanted = memory.reshape([X234.shape[d] for d in axes]).transpose(np.argsort(axes))
    assert_same(with_layouts(operand, result)(X234), np.ascontiguousarray(wanted))


def test_python_functions_see_the_same_array_in_any_layout() -> None:
    seen = []
    sx.register_custom_call("f", lambda x: (seen.append(x.copy()), x + 1)[1])
    assert_same(with_layouts("[0, 1, 2]", "[1, 2, 0]")(X234), X234 + 1)
    assert_same(seen[0], X234)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_aliases_in_a_layout(layout: str) -> None:
    @TARGET
    def first(out: Any, operands: Any) -> None:
        floats(out, 24)[0] += 100

    sx.register_custom_call("f", first)
    wanted = X234.copy()
    wanted[0, 0, 0] += 100
    run = with_layouts(layout, layout, alias="yes")
    assert_same(run(X234), wanted)
    assert_same(run(X234), wanted)


def test_aliases_of_two_layouts_are_refused() -> None:
    sx.register_custom_call("f", increase)
    with pytest.raises(sx.UnsupportedError, match="result 0 lies in memory in another order"):
        with_layouts("[0, 1, 2]", "[2, 1, 0]", alias="yes")


@pytest.mark.parametrize("version", [2, 3, 4])
def test_c_functions_of_other_conventions(version: int) -> None:
    sx.register_custom_call("f", increase)
    with pytest.raises(sx.UnsupportedError, match="which is API_VERSION_ORIGINAL; this call asks for API_VERSION"):
        with_layouts("[2, 1, 0]", "[2, 1, 0]", version=version)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_python_functions_are_called_by_any_convention(version: int) -> None:
    sx.register_custom_call("f", lambda x: x + 1)
    assert_same(with_layouts("[2, 1, 0]", "[2, 1, 0]", version=version)(X234), X234 + 1)


def test_attributes_beside_the_operations_own() -> None:
    """JAX writes those of typed calls as `mhlo.backend_config`."""
    got = {}
    sx.register_custom_call("f", lambda x, **attributes: (got.update(attributes), x)[1])
    run = sx.compile("""
      func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %r = stablehlo.custom_call @f(%x) {backend_config = "", mhlo.backend_config = {k = 3 : ui8, of = "rows"}}
          : (tensor<4xf32>) -> tensor<4xf32>
        return %r : tensor<4xf32>
      }""")
    assert_same(run(X4), X4)
    assert got == {"k": 3, "of": "rows"}


def test_what_is_unregistered_is_unknown() -> None:
    sx.register_custom_call("f", lambda x: x)
    sx.unregister_custom_call("f")
    with pytest.raises(sx.CompileError, match="there is no target 'f'"):
        with_layouts("[2, 1, 0]", "[2, 1, 0]")
    with pytest.raises(KeyError):
        sx.unregister_custom_call("f")
