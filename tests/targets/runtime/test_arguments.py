"""What a compiled program takes as an argument, what it refuses, and what it says then. Oracle: the value itself."""

from __future__ import annotations

import array
import ctypes
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from stablexla.dialects.errors import ExecutionError
from stablexla.targets.runtime import ArraySpec

pytestmark = pytest.mark.usefixtures("nothing_leaks")

NUMPY_TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY_TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
ML_TYPES = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e3m4", "float8_e8m0fnu", "float4_e2m1fn"]
ML_TYPES += ["int4", "uint4", "int2", "uint2"]


def dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


@pytest.mark.parametrize("name", NUMPY_TYPES + ML_TYPES)
def test_array_of_every_dtype(make_echo, name):
    given = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype(name))
    result = make_echo(ArraySpec(given.dtype, (2, 3)))(given)
    assert result.dtype == given.dtype
    assert result.tobytes() == given.tobytes()


def test_dtype_that_is_equal_but_another_object(make_echo):
    given = np.arange(3, dtype=np.dtype("<i8"))
    same = given.view(np.longlong)  # on Linux numpy has two types of 64 bits
    assert same.dtype is not given.dtype
    np.testing.assert_array_equal(make_echo(ArraySpec("int64", (3,)))(same), given)


base = np.arange(24, dtype=np.float32).reshape(4, 6)
misaligned = np.zeros(4 * 6 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(4, 6)
misaligned[...] = base
readonly = base.copy()
readonly.flags.writeable = False


@pytest.mark.parametrize(
    "given",
    [
        np.arange(48, dtype=np.float32).reshape(4, 12)[:, ::2],
        np.asfortranarray(base),
        base[::-1, ::-1],
        misaligned,
        base.astype(">f4"),
        readonly,
        np.broadcast_to(np.float32(3), (4, 6)),
        base.view(np.matrix),
    ],
    ids=["strided", "fortran", "reversed", "misaligned", "swapped", "readonly", "broadcast", "subclass"],
)
def test_array_of_any_layout(make_echo, given):
    result = make_echo(ArraySpec("float32", (4, 6)))(given)
    np.testing.assert_array_equal(result, np.asarray(given))
    assert type(result) is np.ndarray


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 8])
def test_rank_zero_size_zero_and_high_rank(make_echo, shape):
    given = np.full(shape, 7, np.int16)
    result = make_echo(ArraySpec("int16", shape))(given)
    assert result.shape == shape
    np.testing.assert_array_equal(result, given)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1.5, "float32"),
        (1.5, "float64"),
        (1.5, "float16"),
        (1.5, "bfloat16"),
        (1.5, "float8_e4m3fn"),
        (1.5, "complex64"),
        (float("inf"), "float32"),
        (float("-inf"), "bfloat16"),
        (float("nan"), "float32"),
        (3, "float32"),
        (3, "complex128"),
        (127, "int8"),
        (-128, "int8"),
        (2**31 - 1, "int32"),
        (-(2**63), "int64"),
        (2**64 - 1, "uint64"),
        (-8, "int4"),
        (15, "uint4"),
        (True, "bool"),
        (True, "int32"),
        (1 + 2j, "complex64"),
        (np.float32(2.5), "float32"),
        (np.int32(-5), "int32"),
        (np.bool_(True), "bool"),
        (np.complex128(1j), "complex128"),
        (ml_dtypes.bfloat16(2.5), "bfloat16"),
        (ml_dtypes.int4(-3), "int4"),
        (np.int64(3), "int32"),
        (np.int64(3), "float32"),
        (np.float64(2.5), "float32"),
        (np.uint8(7), "int4"),
        (np.bool_(True), "int32"),
    ],
)
def test_number(make_echo, value, name):
    result = make_echo(ArraySpec(dtype(name), ()))(value)
    assert result.dtype == dtype(name)
    np.testing.assert_array_equal(result.astype(np.complex128), np.complex128(value))


def test_number_is_rounded_to_the_parameter(make_echo):
    assert make_echo(ArraySpec("float32", ()))(0.1) == np.float32(0.1)


@pytest.mark.parametrize(
    ("value", "name", "says"),
    [
        (1.5, "int32", "not converted"),
        (1.0, "uint4", "not converted"),
        (1.0, "bool", "not converted"),
        (1, "bool", "not converted"),
        (1j, "float32", "not converted"),
        (128, "int8", "range"),
        (-1, "uint64", "range"),
        (2**31, "int32", "range"),
        (2**63, "int64", "range"),
        (2**200, "int64", "range"),
        (8, "int4", "range"),
        (16, "uint4", "range"),
        (1e39, "float32", "range"),
        (1e39, "bfloat16", "range"),
        (10**400, "float64", "range"),
        (1e39 + 0j, "complex64", "range"),
        (np.float32(1.5), "int32", "not converted"),
        (np.int64(1), "bool", "not converted"),
        (np.int64(128), "int8", "128 is out of the range of s8, -128 to 127"),
        (np.float64(1e39), "float32", "range"),
        (np.float64(np.nan), "float4_e2m1fn", "f4e2m1fn has no NaN"),
        (np.inf, "float8_e4m3fn", "inf is out of the range of f8e4m3fn, -448 to 448"),
        (10, "float4_e2m1fn", "10.0 is out of the range of f4e2m1fn, -6 to 6"),
    ],
)
def test_number_that_does_not_fit(make_echo, value, name, says):
    with pytest.raises(ExecutionError, match=says):
        make_echo(ArraySpec(dtype(name), ()))(value)


def test_masked_array(make_echo):
    masked = np.ma.masked_array(np.ones(3, np.float32), mask=[False, True, False])
    echo = make_echo(ArraySpec("float32", (3,), "x"))
    with pytest.raises(ExecutionError, match=r"parameter 0 \(x\): a masked array") as raised:
        echo(masked)
    assert "try: array.filled(...)" in str(raised.value)
    assert echo(masked.filled(7)).tolist() == [1, 7, 1]
    with pytest.raises(ExecutionError, match="a masked array"):
        make_echo(ArraySpec("float32", ()))(np.ma.masked)


def test_number_for_an_array(make_echo):
    with pytest.raises(ExecutionError, match="a single float came") as raised:
        make_echo(ArraySpec("float32", (2, 3)))(1.5)
    assert 'np.full((2, 3), 1.5, "float32")' in str(raised.value)


def test_buffers(make_echo):
    floats = array.array("f", [1, 2, 3])
    np.testing.assert_array_equal(make_echo(ArraySpec("float32", (3,)))(floats), [1, 2, 3])
    assert make_echo(ArraySpec("uint8", (2,)))(bytearray(b"hi")).tobytes() == b"hi"
    np.testing.assert_array_equal(make_echo(ArraySpec("float32", (3,)))(memoryview(floats)), [1, 2, 3])
    assert make_echo(ArraySpec("int32", (2,)))((ctypes.c_int32 * 2)(5, 6)).tolist() == [5, 6]
    floats.append(4)  # no view of the buffer is left behind, else this is a BufferError


class OnlyDlpack:
    """An array that shows nothing but DLPack."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __dlpack__(self, **options: Any) -> Any:
        return self.inner.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.inner.__dlpack_device__()


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64", "complex128"])
def test_dlpack_of_numpy(make_echo, name):
    given = np.array([[1, 0, 1], [0, 1, 1]]).astype(name)
    echo = make_echo(ArraySpec(name, (3, 2)))
    np.testing.assert_array_equal(echo(OnlyDlpack(given.T)), given.T)


def test_dlpack_lets_go_of_its_array(make_echo):
    given = np.ones(3, np.float32)
    count = sys.getrefcount(given)
    echo = make_echo(ArraySpec("float32", (3,)))
    for _ in range(10):
        echo(OnlyDlpack(given))
    assert sys.getrefcount(given) == count


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float8_e4m3fn", "int4", "bool"])
def test_array_of_jax(make_echo, name):
    jnp = pytest.importorskip("jax.numpy")
    given = jnp.array([1, 0, 1], dtype(name))
    echo = make_echo(ArraySpec(dtype(name), (3,)))
    assert echo(given).tolist() == [1, 0, 1]
    if name != "int4":  # which DLPack does not have
        assert echo(OnlyDlpack(given)).tolist() == [1, 0, 1]


class OnlyArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.arange(3, dtype=np.float32)


class Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("it is on another device")


def test_array_protocol(make_echo):
    echo = make_echo(ArraySpec("float32", (3,)), name="network")
    assert echo(OnlyArray()).tolist() == [0, 1, 2]
    with pytest.raises(ExecutionError, match=r"network: parameter 0.*Broken.*another device"):
        echo(Broken())


def message(call: Any, *arguments: object) -> str:
    with pytest.raises(ExecutionError) as raised:
        call(*arguments)
    return str(raised.value)


def test_wrong_dtype_names_program_parameter_and_a_way_out(make_echo):
    echo = make_echo(ArraySpec("float32", (2, 3), "weights"), name="affine")
    assert message(echo, np.zeros((2, 3))) == (
        'affine: parameter 0 (weights) takes float32[2,3], but an array of float64[2,3] came\n  try: .astype("float32")'
    )
    half = make_echo(ArraySpec(ml_dtypes.bfloat16, (2,)))
    assert ".astype(ml_dtypes.bfloat16)" in message(half, np.zeros(2, np.float32))


def test_wrong_shape(make_echo):
    echo = make_echo(ArraySpec("float32", (2, 3)), name="affine")
    assert message(echo, np.zeros(6, np.float32)) == (
        "affine: parameter 0 takes float32[2,3], but an array of float32[6] came\n  try: .reshape((2, 3))"
    )
    assert "try" not in message(echo, np.zeros((3, 3), np.float32))
    assert "float32[]" in message(echo, np.float32(1))


def test_wrong_count(make_program):
    spec = ArraySpec("float32", (2,), "x")
    add = make_program([spec, ArraySpec("int32", ())], [], lambda *_: None, name="add")
    assert message(add, np.zeros(2, np.float32)) == "add: takes 2 arguments (x: float32[2], int32[]), but 1 came"
    assert "but 0 came" in message(add.execute, [])


@pytest.mark.parametrize("value", [[1.0, 2.0], "text", None, object(), {1: 2}])
def test_no_array_at_all(make_echo, value):
    text = message(make_echo(ArraySpec("float32", (2,))), value)
    assert f"a {type(value).__name__}" in text
    assert ('np.asarray(value, "float32")' in text) == isinstance(value, list)


def test_keywords_are_refused(make_echo):
    with pytest.raises(TypeError, match="by position"):
        make_echo(ArraySpec("float32", ()))(x=1.0)


def test_execute_takes_any_sequence(make_echo):
    echo = make_echo(ArraySpec("int32", ()))
    for sequence in ([3], (3,), np.array([3], np.int32)):
        [result] = echo.execute(sequence)
        assert result == 3
    with pytest.raises(TypeError):
        echo.execute(None)


def test_many_arguments(make_program):
    """More than the native side keeps room for on the stack."""
    specs = [ArraySpec("int64", ())] * 300

    def total(*arrays: np.ndarray) -> None:
        arrays[300][...] = sum(int(a[()]) for a in arrays[:300])

    assert make_program(specs, specs[:1], total)(*range(300)) == sum(range(300))


def test_specs_compare_and_print():
    spec = ArraySpec("float32", (2, 3), "x")
    assert spec == ArraySpec(np.float32, [2, 3], "x")
    assert spec != ArraySpec("float32", (3, 2), "x")
    assert hash(spec) == hash(ArraySpec(np.float32, [2, 3], "x"))
    assert (spec.dtype, spec.shape, spec.name, spec.nbytes) == (np.dtype("f4"), (2, 3), "x", 24)
    assert str(spec) == "float32[2,3]"
    assert repr(spec) == "<ArraySpec x: float32[2,3]>"


@pytest.mark.parametrize(("dtype", "shape"), [("O", ()), (">f4", ()), ("f4", (-1,)), ("f8", (2**40, 2**40))])
def test_specs_that_make_no_sense(dtype, shape):
    with pytest.raises(ValueError, match=r"plain|dimension|bytes"):
        ArraySpec(dtype, shape)
