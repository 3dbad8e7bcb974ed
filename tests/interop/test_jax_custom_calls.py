"""Custom calls that JAX makes besides those of LAPACK, those of other platforms, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import stablexla as sx
from tests.comparison import assert_same
from tests.interop.jax_programs import random_array, run_both

pytestmark = pytest.mark.usefixtures("wide_numbers")

X = random_array(np.float32, 4, 50)


def test_what_only_counts_as_used() -> None:
    """`jax.lax.dce_sink` keeps a value from being dropped."""
    program = """
    func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
      %0 = stablehlo.exponential %x : tensor<2xf32>
      stablehlo.custom_call @dce_sink(%0) {has_side_effect = true, api_version = 4 : i32} : (tensor<2xf32>) -> ()
      return %x : tensor<2xf32>
    }
    """
    assert_same(sx.compile(program)(np.array([1, 2], np.float32)), np.array([1, 2], np.float32))


# ---- approximate top-k -----------------------------------------------------------------------------------------------

TOP_K: dict[str, Callable[..., Any]] = {
    "largest": lambda x: jax.lax.approx_max_k(x, 3),
    "smallest": lambda x: jax.lax.approx_min_k(x, 5),
    "along the first dimension": lambda x: jax.lax.approx_max_k(x, 2, reduction_dimension=0),
    "not aggregated": lambda x: jax.lax.approx_max_k(x, 3, aggregate_to_topk=False),
}


@pytest.mark.parametrize("name", TOP_K)
def test_approximate_top_k(name: str) -> None:
    """On CPUs JAX finds the exact ones too; numpy says that they are."""
    here, there = run_both(TOP_K[name], X)
    for x, y in zip(here, there, strict=True):
        assert_same(x, y)
    values, places = here
    along = 0 if "first" in name else 1
    wanted = np.sort(X if name == "smallest" else -X, along).take(range(values.shape[along]), along)
    assert_same(values, wanted if name == "smallest" else -wanted)
    assert_same(np.take_along_axis(X, places.astype(np.int64), along), values)


def test_approximate_top_k_of_half_precision() -> None:
    here, there = run_both(lambda x: jax.lax.approx_max_k(x.astype(jnp.bfloat16), 3), X)
    for x, y in zip(here, there, strict=True):
        assert_same(x, y)


# ---- linear algebra as it is exported for TPUs -----------------------------------------------------------------------

FUNCTIONS = {"Qr": jnp.linalg.qr, "Eigh": jnp.linalg.eigh, "LuDecomposition": jax.lax.linalg.lu}


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_linear_algebra_of_tpus(name: str, batch: tuple[int, ...]) -> None:
    """JAX's own result on a CPU is the oracle: the calls stand for the same factorisations."""
    function = FUNCTIONS[name]
    a = random_array(np.float32, *batch, 5, 5)
    text = export.export(jax.jit(function), platforms=["tpu"])(a).mlir_module()
    assert f"@{name}(" in text
    for x, y in zip(sx.compile(text).execute([a]), jax.tree.leaves(jax.jit(function)(a)), strict=True):
        assert_same(x, np.asarray(y))


# ---- functions under older names -------------------------------------------------------------------------------------

OLDER = {
    "mhlo.acos": np.arccos,
    "mhlo.acosh": lambda x: np.arccosh(x + 1),
    "mhlo.asin": np.arcsin,
    "mhlo.asinh": np.arcsinh,
    "mhlo.atanh": np.arctanh,
    "mhlo.cosh": np.cosh,
    "mhlo.sinh": np.sinh,
    "mhlo.tan": np.tan,
}


def unary(name: str, mlir_type: str) -> str:
    return f"""
      func.func @main(%x: tensor<3x{mlir_type}>) -> tensor<3x{mlir_type}> {{
        %r = stablehlo.custom_call @{name}(%x) {{mhlo.attributes = {{}}, mhlo.version = 1 : i64}}
          : (tensor<3x{mlir_type}>) -> tensor<3x{mlir_type}>
        return %r : tensor<3x{mlir_type}>
      }}"""


@pytest.mark.parametrize("name", OLDER)
def test_functions_under_older_names(name: str) -> None:
    x = np.array([0.125, 0.5, 0.75])
    given = x + 1 if name == "mhlo.acosh" else x
    assert_same(sx.compile(unary(name, "f64"))(given), OLDER[name](x), ulp=4)


def test_error_function_under_an_older_name() -> None:
    from scipy.special import erf

    x = np.array([-1, 0.25, 3], np.float32)
    assert_same(sx.compile(unary("mhlo.erf", "f32"))(x), erf(x).astype(np.float32), ulp=1)


def test_functions_under_older_names_of_integers() -> None:
    with pytest.raises(sx.UnsupportedError, match="takes an array of floats"):
        sx.compile(unary("mhlo.tan", "i32"))


# ---- what there is no target for -------------------------------------------------------------------------------------


def message(name: str) -> str:
    with pytest.raises(sx.CompileError) as caught:
        sx.compile(unary(name, "f32"))
    return str(caught.value)


def test_an_unknown_target_is_named_with_its_likes() -> None:
    said = message("lapack_ssyevd")
    assert "there is no target 'lapack_ssyevd'" in said
    assert "'lapack_ssyevd_ffi'" in said
    assert "sx.register_custom_call('lapack_ssyevd', function)" in said


def test_another_dialects_unknown_target() -> None:
    assert "sx.register_custom_call('weather', function)" in message("weather")


@pytest.mark.parametrize(
    "name", ["cu_threefry2x32_ffi", "cusolver_syevd_ffi", "hipsolver_getrf_ffi", "__gpu$xla.gpu.triton"]
)
def test_targets_of_gpus(name: str) -> None:
    said = message(f'"{name}"')
    assert f"the target {name!r} is a function for GPUs" in said
    assert 'platforms=["cpu"]' in said


def test_targets_of_tpus() -> None:
    assert "is a function for TPUs" in message("tpu_custom_call")


def test_a_registered_function_stands_before_what_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
    sx.register_custom_call("mhlo.tan", lambda x, **_: x + 1)
    x = np.arange(3, dtype=np.float32)
    assert_same(sx.compile(unary("mhlo.tan", "f32"))(x), x + 1)


def test_ragged_all_to_all() -> None:
    """The example of its documentation, over a mesh of two devices."""
    mesh = jax.sharding.AbstractMesh((2,), ("x",))
    rows = jax.sharding.PartitionSpec("x")
    function = jax.jit(
        jax.shard_map(
            lambda *args: jax.lax.ragged_all_to_all(*args, axis_name="x"), mesh=mesh, in_specs=rows, out_specs=rows
        )
    )
    x, room = np.array([1, 2, 2, 3, 4, 0], np.float32), np.zeros(8, np.float32)
    numbers = [np.array(v, np.int32) for v in ([0, 1, 0, 1], [1, 2, 1, 1], [0, 0, 1, 2], [1, 1, 2, 1])]
    sharding = jax.sharding.NamedSharding(mesh, rows)
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in (x, room, *numbers)]
    unchecked = [export.DisabledSafetyCheck.custom_call("ragged_all_to_all")]
    made = export.export(function, platforms=["cpu"], disabled_checks=unchecked)(*types)
    result = sx.compile(made.mlir_module_serialized)(x, room, *numbers)
    np.testing.assert_array_equal(result, np.array([1, 3, 0, 0, 2, 2, 4, 0], np.float32))
