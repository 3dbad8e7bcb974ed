"""Functions that `jax.export` wrote for shapes with symbols, run on arrays of several shapes, as JAX runs them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

import stablexla as sx
from tests.comparison import assert_same

F32 = np.float32


def resize(x: Any) -> Any:
    """Half of the rows, by windows whose size follows from the shape."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (x.shape[0] // 2, 1), (1, 1), "VALID")


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def running(x: Any) -> Any:
    return lax.scan(lambda carry, row: (carry + row, carry * row), jnp.zeros(x.shape[1]), x)


def powers(x: Any) -> Any:
    return lax.fori_loop(0, x.shape[0], lambda i, y: y + x[i], jnp.zeros(x.shape[1]))


def edges(x: Any) -> Any:
    return jnp.pad(x, ((1, x.shape[0]), (0, 2))), x[: x.shape[0] - 1, ::2], jnp.flip(x, 0)


# A function, the shapes of its parameters, and shapes to call it with. The oracle is JAX's own call, on XLA:CPU.
CASES: list[tuple[Callable[..., Any], list[str], list[list[tuple[int, ...]]]]] = [
    (lambda x, y: jnp.concatenate([x, y], 0).reshape(-1), ["b, 3", "c, 3"], [[(2, 3), (1, 3)], [(4, 3), (2, 3)]]),
    (lambda x, w: jax.nn.relu(x @ w), ["b, 8", "8, 4"], [[(1, 8), (8, 4)], [(5, 8), (8, 4)]]),
    (lambda x: x.shape[0] * jnp.arange(x.shape[0] + x.shape[1]), ["b, c"], [[(2, 3)]]),
    (lambda x: (x[:, -1], x.mean(1), x.T, x.sum()), ["b, c"], [[(2, 3)]]),
    (lambda x: jnp.broadcast_to(x[:, None], (x.shape[0], 2 * x.shape[0])), ["b"], [[(3,)]]),
    (lambda x: x.reshape(x.shape[0] // 2, 2, -1), ["2*b, c"], [[(4, 3)]]),
    (lambda x: lax.top_k(x, x.shape[1] - 1), ["b, c"], [[(2, 5)], [(1, 3)]]),
    (lambda x: lax.approx_max_k(x, x.shape[1] - 2), ["b, c + 2"], [[(2, 9)]]),
    (lambda x: jnp.sort(x, 0), ["b, c"], [[(5, 2)]]),
    (lambda x, i: x[i], ["b, c", "k"], [[(4, 3), (2,)]]),
    (lambda x: jnp.cumsum(x, 0), ["b, 2"], [[(6, 2)]]),
    (
        lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME"),
        ["b, 2, h, h", "3, 2, 3, 3"],
        [[(1, 2, 7, 7), (3, 2, 3, 3)]],
    ),
    (lambda x: lax.rng_bit_generator(jnp.array([1, 2, 3, 4], jnp.uint32), (x.shape[0], 3))[1], ["b"], [[(4,)]]),
    (lambda x: jax.random.uniform(jax.random.key(0), x.shape) + x, ["b, c"], [[(3, 2)]]),
    (lambda x: jnp.linspace(0.0, 1.0, x.shape[0]), ["b + 1"], [[(5,)]]),
    (resize, ["2*b, c"], [[(6, 3)], [(8, 2)]]),
    (softmax, ["b, c"], [[(2, 4)]]),
    (running, ["b, c"], [[(3, 2)]]),
    (powers, ["b, c"], [[(3, 2)]]),
    (edges, ["b, c"], [[(3, 4)]]),
]


def exported(function: Callable[..., Any], shapes: list[str], dtypes: tuple[Any, ...] = ()) -> Any:
    """The exported function; one scope of symbols for all parameters."""
    scope = export.SymbolicScope()
    types = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), dtypes[i] if dtypes else F32)
        for i, shape in enumerate(shapes)
    ]
    return export.export(jax.jit(function))(*types)


def drawn(shapes: list[tuple[int, ...]], types: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal(s).astype(F32) if t.dtype == F32 else rng.integers(0, 2, s).astype(t.dtype)
        for s, t in zip(shapes, types, strict=True)
    ]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_as_jax_calls_it(number: int) -> None:
    function, symbols, calls = CASES[number]
    dtypes = tuple(np.int32 if s == "k" else F32 for s in symbols)
    program = exported(function, symbols, dtypes)
    executable = sx.compile(program.mlir_module_serialized)
    for shapes in calls:
        arrays = drawn(shapes, program.in_avals)
        expected = jax.tree.leaves(program.call(*arrays))
        for actual, wanted in zip(executable.execute(arrays), expected, strict=True):
            assert_same(actual, np.asarray(wanted), scale=1e-5)


# Programs that JAX keeps, of the years 2023 and 2024, with what they gave then.
KEPT = {
    "stablehlo_dynamic_approx_top_k": ["data_2024_05_30"],
    "stablehlo_dynamic_rng_bit_generator": ["data_2023_06_17"],
    "stablehlo_dynamic_top_k": ["data_2023_07_16", "data_2023_08_11"],
    "tpu_stablehlo_dynamic_reduce_window": ["data_unary_2023_06_17"],
}


@pytest.mark.parametrize(("module", "name"), [(module, name) for module, names in KEPT.items() for name in names])
def test_programs_of_older_releases(module: str, name: str) -> None:
    kept = getattr(importlib.import_module(f"jax._src.internal_test_util.export_back_compat_test_data.{module}"), name)
    arguments = [np.asarray(a) for a in kept["inputs"]]
    expected = kept["expected_outputs"]
    results = sx.compile(kept["mlir_module_serialized"]).execute(arguments)
    for actual, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert_same(actual, np.asarray(wanted), scale=1e-6)


def test_a_constraint_that_does_not_hold_is_told_with_its_numbers() -> None:
    scope = export.SymbolicScope(["b >= 2"])
    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b, 3", scope=scope), F32)
    program = export.export(jax.jit(lambda x: x + 1))(shape)
    executable = sx.compile(str(program.mlir_module()))
    with pytest.raises(sx.ExecutionError, match=r"b >= 2.*but found -1(.|\n)*parameter 0  f32\[1,3\]"):
        executable(np.ones((1, 3), F32))
    with pytest.raises(ValueError, match="b >= 2"):
        program.call(np.ones((1, 3), F32))
    assert executable(np.ones((2, 3), F32)).shape == (2, 3)


def test_a_product_of_symbols_is_asserted() -> None:
    executable = sx.compile(exported(lambda x: x.reshape(-1, 2), ["2*b, c"]).mlir_module_serialized)
    assert executable(np.ones((4, 3), F32)).shape == (6, 2)
    with pytest.raises(sx.ExecutionError, match=r"Division had remainder|does not"):
        executable(np.ones((3, 3), F32))


def test_symbols_that_have_to_agree() -> None:
    executable = sx.compile(exported(lambda x, y: x + y, ["b", "b"]).mlir_module_serialized)
    with pytest.raises(sx.ExecutionError, match="'b'"):
        executable(np.ones(2, F32), np.ones(3, F32))


def test_several_platforms_take_the_number_of_theirs_first() -> None:
    def function(x: Any) -> Any:
        return lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=lambda x: x + 2)

    shape = jax.ShapeDtypeStruct(export.symbolic_shape("b"), F32)
    program = export.export(jax.jit(function), platforms=("cpu", "cuda"))(shape)
    executable = sx.compile(program.mlir_module_serialized)
    x = np.zeros(3, F32)
    assert_same(executable(np.int32(0), x), np.asarray(program.call(x)), scale=1e-5)
    assert_same(executable(np.int32(1), x), x + 2, scale=1e-5)


def test_a_function_used_with_two_shapes() -> None:
    inner = jax.jit(lambda v: v * 2)
    program = exported(lambda x: (inner(x), inner(jnp.concatenate([x, x]))), ["b"])
    x = np.arange(3, dtype=F32)
    for actual, wanted in zip(sx.compile(program.mlir_module_serialized).execute([x]), program.call(x), strict=True):
        assert_same(actual, np.asarray(wanted), scale=1e-5)
