"""Arrays of other libraries as arguments, and results handed to them: which way there is no copy."""

from __future__ import annotations

from collections.abc import Callable

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

import stablexla as sx

TORCH = {
    "pred": torch.bool,
    "s8": torch.int8,
    "u8": torch.uint8,
    "s32": torch.int32,
    "s64": torch.int64,
    "u16": torch.uint16,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "f8e4m3fn": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
}


def where_parameters_lie(element_type: str, dimensions: tuple[int, ...]) -> tuple[sx.Executable, list[int]]:
    """A program that returns its parameter, and notes at which address it lay."""
    seen: list[int] = []

    def note(array: np.ndarray) -> np.ndarray:
        seen.append(array.ctypes.data)
        return array

    name = f"note_{element_type}_{len(dimensions)}"
    sx.register_custom_call(name, note)
    b = sx.XlaBuilder("note")
    x = b.parameter(0, sx.Shape(element_type, dimensions))
    return sx.compile(b.build(sx.custom_call(name, x, sx.Shape(element_type, dimensions)))), seen


@pytest.mark.parametrize("name", TORCH)
def test_torch_both_ways(name):
    program, seen = where_parameters_lie(name, (2, 3))
    given = torch.tensor([[0, 1, 2], [3, 0, 1]]).to(TORCH[name])
    result = program(given)
    assert seen == [given.data_ptr()]
    back = torch.from_dlpack(sx.to_dlpack(result))
    assert back.data_ptr() == result.ctypes.data
    assert back.dtype is TORCH[name]
    assert torch.equal(back.to(torch.complex64), given.to(torch.complex64))


@pytest.mark.parametrize("name", ["bool", "int8", "uint32", "bfloat16", "float16", "float32", "complex64", "int4"])
def test_jax_as_argument(name):
    given = jax.numpy.array([[0, 1, 2], [3, 0, 1]]).astype(name)
    program, seen = where_parameters_lie(str(sx.Shape(*_type_and_shape(given)).element_type), (2, 3))
    np.testing.assert_array_equal(program(given), np.asarray(given))
    if name != "int4":  # which lies in half bytes there
        assert seen == [given.unsafe_buffer_pointer()]


def _type_and_shape(array: jax.Array) -> tuple[str, tuple[int, ...]]:
    names = {np.dtype(t.dtype): t.name for t in sx.dialects.element_types.BY_NAME.values()}
    return names[np.dtype(array.dtype)], array.shape


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16])
def test_jax_from_a_result(dtype):
    program, _ = where_parameters_lie(*_type_and_shape(np.ones((2, 3), dtype)))
    result = program(np.ones((2, 3), dtype))
    taken = jax.dlpack.from_dlpack(sx.to_dlpack(result))
    assert taken.unsafe_buffer_pointer() == result.ctypes.data
    assert taken.dtype == dtype


VIEWS: dict[str, Callable[[np.ndarray], object]] = {
    "transposed": lambda a: a.T,
    "every other": lambda a: np.repeat(a.T, 2, axis=1)[:, ::2],
    "backwards": lambda a: a.T[::-1][::-1],
    "negative strides": lambda a: np.ascontiguousarray(a.T[::-1])[::-1],
    "broadcast": lambda a: np.broadcast_to(a.T, (1, 3, 2))[0],
    "big-endian": lambda a: a.T.astype(">f4"),
    "one byte off": lambda a: _unaligned(a.T),
    "Fortran's order": lambda a: np.asfortranarray(a.T),
    "read-only": lambda a: _read_only(a.T),
    "torch, transposed": lambda a: torch.from_numpy(a).T,
    "torch, expanded": lambda a: torch.from_numpy(a.T.copy()).expand(1, 3, 2)[0],
    "JAX, transposed": lambda a: jax.numpy.asarray(a).T,
    "a buffer of floats": lambda a: memoryview(np.ascontiguousarray(a.T)),
}


def _unaligned(array: np.ndarray) -> np.ndarray:
    room = np.zeros(array.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(array.shape)
    room[...] = array
    return room


def _read_only(array: np.ndarray) -> np.ndarray:
    copy = np.ascontiguousarray(array)
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize("name", VIEWS)
def test_views(name):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = sx.XlaBuilder("double")
    program = sx.compile(b.build(b.parameter(0, sx.f32[3, 2]) * 2))
    np.testing.assert_array_equal(program(VIEWS[name](values.copy())), 2 * values.T)


def test_a_tensor_with_gradients():
    program, _ = where_parameters_lie("f32", (2,))
    with pytest.raises(sx.ExecutionError, match="gradient"):
        program(torch.zeros(2, requires_grad=True))


def test_what_dlpack_does_not_have():
    with pytest.raises(TypeError, match="int4"):
        sx.to_dlpack(np.zeros(2, ml_dtypes.int4))
    with pytest.raises(TypeError, match=r"masked array.*filled"):
        sx.to_dlpack(np.ma.masked_array([1, 2], [1, 0]))
    with pytest.raises(TypeError, match="datetime64"):
        sx.to_dlpack(np.zeros(2, "M8[s]"))


def test_an_exported_result_keeps_its_memory():
    program, _ = where_parameters_lie("bf16", (2, 3))
    tensor = torch.from_dlpack(sx.to_dlpack(program(np.full((2, 3), 7, ml_dtypes.bfloat16))))
    others = [program(np.zeros((2, 3), ml_dtypes.bfloat16)) for _ in range(4)]
    assert tensor.tolist() == [[7.0] * 3] * 2
    del others
