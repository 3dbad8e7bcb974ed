"""What JAX says about several devices, in a program for one: dropped where it means nothing, refused where it does.

Programs that run on several devices are in test_jax_sharding_devices.py.

Programs for more devices than this process has are lowered for abstract meshes. The oracle is `jax.jit` on one device.
"""

from __future__ import annotations

import importlib
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import stablexla as sx
from stablexla.interop.jax import from_exported, from_lowered, jit
from tests.interop.jax_comparison import assert_as_jax

X = np.arange(12, dtype=np.float32).reshape(4, 3)
ONE = Mesh(np.array(jax.devices()[:1]), ("x",))
TWO = AbstractMesh((2,), ("x",), axis_types=(AxisType.Auto,))

HEAD = """
module @several attributes {mhlo.num_partitions = 1 : i32} {
  sdy.mesh @grid = <["x"=SIZE, "y"=1]>
"""
GROUPS = '#stablehlo.replica_group_mesh_axes<mesh = @grid, axes = [#stablehlo.axis_ref<name = "AXIS">]>'


def artifact(function: Any, mesh: AbstractMesh = TWO) -> jax.export.Exported:
    """The function exported for the devices of a mesh."""
    x = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=NamedSharding(mesh, P("x")))
    return jax.export.export(jax.jit(function), platforms=["cpu"])(x)


@pytest.fixture(params=[True, False], ids=["shardy", "gspmd"])
def partitioner(request: pytest.FixtureRequest) -> Any:
    before = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", request.param)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.usefixtures("partitioner")
class TestOneDevice:
    def test_constraints(self) -> None:
        def function(x: Any) -> Any:
            return lax.with_sharding_constraint(x * 2, NamedSharding(ONE, P("x"))).T

        assert_as_jax(function, X)
        lowered = jax.jit(function, in_shardings=NamedSharding(ONE, P("x"))).lower(X)
        np.testing.assert_array_equal(from_lowered(lowered)(X), 2 * X.T)
        np.testing.assert_array_equal(sx.compile(lowered.as_text())(X), 2 * X.T)

    def test_shard_map(self) -> None:
        def per_device(x: Any) -> Any:
            return lax.psum(x, "x") + lax.axis_index("x") + lax.all_gather(x, "x", tiled=True)

        function = jax.shard_map(per_device, mesh=ONE, in_specs=P("x"), out_specs=P(), check_vma=False)
        assert_as_jax(function, X)

    def test_memory_kinds(self) -> None:
        assert_as_jax(lambda x: jax.device_put(x, jax.memory.Space.Device) + 1, X)

    def test_barrier(self) -> None:
        assert_as_jax(lambda x: lax.optimization_barrier((x, x + 1)), X)


@pytest.mark.usefixtures("partitioner")
class TestSeveralDevices:
    def test_arrays_on_two_devices_are_computed_with_on_two_or_one(self) -> None:
        def function(x: Any) -> Any:
            return x @ x.T

        exported = artifact(function)
        assert exported.nr_devices == 2
        np.testing.assert_array_equal(from_exported(exported)(X), X @ X.T)
        executable = sx.compile(str(exported.mlir_module()))
        assert executable.num_partitions == 2
        assert executable.parameters[0].shape == (2, 3)
        np.testing.assert_array_equal(executable(X), X @ X.T)
        np.testing.assert_array_equal(sx.compile(str(exported.mlir_module()), num_partitions=1)(X), X @ X.T)

    def test_parts(self) -> None:
        per_device = jax.shard_map(lambda x: lax.psum(x, "x"), mesh=TWO, in_specs=P("x"), out_specs=P())

        def function(x: Any) -> Any:
            return per_device(x) + 1

        exported = artifact(function)
        np.testing.assert_array_equal(from_exported(exported)(X), X[:2] + X[2:] + 1)
        with pytest.raises(sx.UnsupportedError, match=r'(?s)mesh @mesh(_0)? with "x"=2|several devices') as caught:
            sx.compile(exported.mlir_module_serialized, num_partitions=1)
        assert "compiled for one device" in str(caught.value)
        assert "test_jax_sharding.py" in str(caught.value)


def program(body: str, size: int = 1, axis: str = "x") -> str:
    return (HEAD.replace("SIZE", str(size)) + body + "}").replace("GROUPS", GROUPS).replace("AXIS", axis)


class TestText:
    def test_manual_computation_is_inlined(self) -> None:
        """Also with groups of replicas that are written as axes of the mesh."""
        text = """
          func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}]>,
                                                    tf.aliasing_output = 0 : i32})
              -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@grid, [{}]>, jax.result_info = "result"}) {
            %0 = sdy.manual_computation(%x) in_shardings=[<@grid, [{"AXIS"}]>] out_shardings=[<@grid, [{}]>]
                manual_axes={"AXIS"} (%arg: tensor<4xf32>) {
              %1 = "stablehlo.all_reduce"(%arg) <{
                channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
                replica_groups = GROUPS
              }> ({
              ^bb0(%a: tensor<f32>, %b: tensor<f32>):
                %2 = stablehlo.add %a, %b : tensor<f32>
                stablehlo.return %2 : tensor<f32>
              }) : (tensor<4xf32>) -> tensor<4xf32>
              sdy.return %1 : tensor<4xf32>
            } : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        """
        for size, axis in ((1, "x"), (2, "y")):
            executable = sx.compile(program(text, size, axis))
            np.testing.assert_array_equal(executable(X[:, 0]), X[:, 0])
            assert "sdy." not in executable.ir("stablehlo")
            assert "tf.aliasing_output" in executable.ir("stablehlo")

    def test_operations_that_move_elements(self) -> None:
        text = """
          func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
            %0 = sdy.reshard %x <@grid, [{"x"}]> : tensor<4xf32>
            %1 = sdy.all_gather [{"x"}] %0 out_sharding=<@grid, [{}]> : tensor<4xf32>
            %2 = sdy.propagation_barrier %1 allowed_direction=BACKWARD : tensor<4xf32>
            sdy.sharding_group %2 group_id=3 : tensor<4xf32>
            %3 = sdy.constant dense<1.0> : tensor<4xf32>
            %4 = sdy.named_computation<"inner">(%2, %3) (%a: tensor<4xf32>, %b: tensor<4xf32>) {
              %5 = stablehlo.add %a, %b : tensor<4xf32>
              sdy.return %5 : tensor<4xf32>
            } : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
            return %4 : tensor<4xf32>
          }
        """
        for size in (1, 2):
            np.testing.assert_array_equal(sx.compile(program(text, size))(X[:, 0]), X[:, 0] + 1)

    @pytest.mark.parametrize("prefix", ["", "local_"])
    def test_notes_as_custom_calls(self, prefix: str) -> None:
        names = [
            "Sharding",
            "LayoutConstraint",
            "annotate_device_placement",
            "MoveToHost",
            "MoveToDevice",
            "PinToDevice",
        ]
        names += ["SPMDFullToShardShape", "SPMDShardToFullShape", "ShardBarrierFrom", "ShardBarrierTo"]
        names += [f"{prefix}xla.sdy.FuncResultSharding", f"{prefix}xla.sdy.PropagationBarrier"]
        lines = [f"%x{i + 1} = stablehlo.custom_call @{name}(%x{i})" for i, name in enumerate(names)]
        body = "\n".join(f"{line} {{has_side_effect = true}} : (tensor<4xf32>) -> tensor<4xf32>" for line in lines)
        text = f"""
          func.func public @main(%x0: tensor<4xf32>) -> tensor<4xf32> {{
            {body}
            stablehlo.custom_call @{prefix}xla.sdy.ShardingGroup(%x5) {{has_side_effect = true}} : (tensor<4xf32>) -> ()
            return %x{len(names)} : tensor<4xf32>
          }}
        """
        executable = sx.compile(program(text))
        assert "custom_call" not in executable.ir("stablehlo")
        np.testing.assert_array_equal(executable(X[:, 0]), X[:, 0])

    @pytest.mark.parametrize("name", ["SPMDFullToShardShape", "xla.sdy.GlobalToLocalShape"])
    def test_shapes_of_parts_are_refused(self, name: str) -> None:
        text = f"""
          func.func public @main(%x: tensor<4xf32>) -> tensor<2xf32> {{
            %0 = stablehlo.custom_call @{name}(%x) : (tensor<4xf32>) -> tensor<2xf32>
            return %0 : tensor<2xf32>
          }}
        """
        with pytest.raises(sx.UnsupportedError, match=rf"{name}.*tensor<2xf32> of tensor<4xf32>.*one device"):
            sx.compile(program(text))

    def test_collective_over_several_is_refused(self) -> None:
        text = """
          func.func public @main(%x: tensor<4xf32>) -> tensor<8xf32> {
            %0 = "stablehlo.all_gather"(%x) <{
              all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
              replica_groups = GROUPS,
              use_global_device_ids}> : (tensor<4xf32>) -> tensor<8xf32>
            return %0 : tensor<8xf32>
          }
        """
        with pytest.raises(sx.UnsupportedError, match=r'all_gather: .* mesh @grid with "x"=2'):
            sx.compile(program(text, 2))

    def test_attributes_that_say_nothing_here(self) -> None:
        text = """
        module @attributes attributes {jax.uses_shape_polymorphism = false, mhlo.num_partitions = 1 : i32,
            mhlo.num_replicas = 1 : i32, mhlo.frontend_attributes = {xla.sdy.meshes = "{}"}} {
          func.func public @main(
              %x: tensor<4xf32> {mhlo.sharding = "{replicated}", mhlo.layout_mode = "default", jax.arg_info = "x",
                                 mhlo.memory_kind = "device", jax.buffer_donor = true})
              -> (tensor<4xf32> {jax.result_info = "", mhlo.layout_mode = "{0}", mhlo.memory_kind = "pinned_host"}) {
            %0 = stablehlo.add %x, %x {mhlo.frontend_attributes = {a = "b"}, mhlo.sharding = "{replicated}"}
                : tensor<4xf32>
            return %0 : tensor<4xf32>
          }
        }
        """
        np.testing.assert_array_equal(sx.compile(text)(X[:, 0]), 2 * X[:, 0])


KEPT = "jax._src.internal_test_util.export_back_compat_test_data."
"""Programs that older versions exported: JAX keeps them to test that it still reads them."""


def test_placements_of_older_versions() -> None:
    for artifact in vars(importlib.import_module(f"{KEPT}annotate_data_placement")).values():
        if isinstance(artifact, dict) and "mlir_module_serialized" in artifact:
            executable = sx.compile(sx.load(artifact["mlir_module_serialized"], trusted=True), num_partitions=1)
            for result, right in zip(executable.execute(artifact["inputs"]), artifact["expected_outputs"], strict=True):
                np.testing.assert_array_equal(result, right)


@pytest.mark.parametrize("name", ["multiple_meshes", "specified_sharding", "unspecified_sharding"])
def test_shardings_of_older_versions(name: str) -> None:
    """For two devices all of them; what they compute is a matrix product, or twice the argument."""
    for kept in importlib.import_module(f"{KEPT}export_with_{name}").serializations:
        program = from_exported(bytes(kept["exported_serialized"]))
        if name == "multiple_meshes":
            inputs = tuple(np.full((4, 8), i, np.float32) for i in range(4))
            weights = tuple(np.full((8, 2), i + 1, np.float32) for i in range(4))
            for i, result in enumerate(program(inputs, weights)):
                np.testing.assert_array_equal(result, inputs[i] @ weights[i])
        else:
            x = np.arange(64, dtype=np.float32).reshape(16, 4)
            np.testing.assert_array_equal(program(x), 2 * x)


def test_arrays_of_named_shardings() -> None:
    """Arguments that are committed to a mesh of one device."""
    x = jax.device_put(jnp.asarray(X), NamedSharding(ONE, P("x", None)))
    np.testing.assert_array_equal(jit(lambda x: x + 1)(x), X + 1)


def test_a_mesh_that_is_written_where_it_is_used():
    text = """
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = sdy.manual_computation(%x) in_shardings=[<mesh<["a"=2]>, [{}]>] out_shardings=[<mesh<["a"=2]>, [{}]>]
          manual_axes={"a"} (%y: tensor<4xf32>) {
        sdy.return %y : tensor<4xf32>
      } : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    with pytest.raises(sx.UnsupportedError, match=r'mesh mesh<\["a"=2\]> with "a"=2'):
        sx.compile(text)
    one = sx.compile(text.replace('"a"=2', '"a"=1'))
    np.testing.assert_array_equal(one(np.ones(4, np.float32)), np.ones(4))


def test_a_mesh_whose_name_begins_another():
    text = """
    sdy.mesh @mesh = <["a"=2]>
    sdy.mesh @mesh2 = <["a"=1]>
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = sdy.manual_computation(%x) in_shardings=[<@mesh2, [{}]>] out_shardings=[<@mesh2, [{}]>]
          manual_axes={"a"} (%y: tensor<4xf32>) {
        sdy.return %y : tensor<4xf32>
      } : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }"""
    np.testing.assert_array_equal(sx.compile(text)(np.ones(4, np.float32)), np.ones(4))
