"""Programs on sharded arrays as text, on several devices of this process; the oracle is the same program on one."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from tests.interop.sharded_product import HEAD, PRODUCT, X
from tests.interop.sharded_random import random_program


class TestExecutable:
    def test_whole_arrays_and_parts(self) -> None:
        executable = sx.compile(PRODUCT)
        assert (executable.num_replicas, executable.num_partitions) == (1, 4)
        assert (executable.parameters[0].shape, executable.results[0].shape) == ((4, 2), (4, 8))
        np.testing.assert_array_equal(executable(X), X @ X.T)
        np.testing.assert_array_equal(executable.execute([X])[0], X @ X.T)
        parts = [[X[:4, :2].copy()], [X[:4, 2:].copy()], [X[4:, :2].copy()], [X[4:, 2:].copy()]]
        results = executable.execute_replicated(parts)
        for device, (result,) in enumerate(results):
            np.testing.assert_array_equal(result, (X @ X.T)[:4] if device < 2 else (X @ X.T)[4:])

    def test_shardings(self) -> None:
        executable = sx.compile(PRODUCT)
        assert executable.input_shardings is not None
        assert executable.output_shardings is not None
        assert executable.input_shardings[0].parts[2] == ((4, 8), (0, 2))
        assert executable.output_shardings[0].index(1) == (slice(0, 4), slice(0, 8))
        assert not executable.output_shardings[0].is_replicated
        assert sx.compile(PRODUCT, num_partitions=1).input_shardings is None

    def test_replicas(self) -> None:
        """Every replica does the same; groups of devices stay within one."""
        executable = sx.compile(PRODUCT, num_replicas=2)
        assert executable.num_replicas == 2
        np.testing.assert_array_equal(executable(X), X @ X.T)

    def test_stages(self) -> None:
        executable = sx.compile(PRODUCT)
        assert "sdy.mesh" in executable.ir("source")
        assert "tensor<8x4xf32>" in executable.ir("source")
        lowered = executable.ir("stablehlo")
        assert "all_reduce" in lowered
        assert "tensor<4x2xf32>" in lowered
        assert "sdy" not in lowered

    def test_saved(self, tmp_path: Path) -> None:
        path = tmp_path / "program"
        sx.compile(PRODUCT).save(path)
        np.testing.assert_array_equal(sx.load_executable(path)(X), X @ X.T)

    def test_one_partition(self) -> None:
        np.testing.assert_array_equal(sx.compile(PRODUCT, num_partitions=1)(X), X @ X.T)

    def test_wrong_arguments(self) -> None:
        executable = sx.compile(PRODUCT)
        with pytest.raises(sx.ExecutionError, match=r"argument 0 takes float32\[8,4\], .* float32\[4,2\] came"):
            executable(X[:4, :2])
        with pytest.raises(sx.ExecutionError, match="takes 1 whole array"):
            executable(X, X)
        with pytest.raises(sx.ExecutionError, match="an array of float64"):
            executable(X.astype(np.float64))

    def test_wrong_number_of_partitions(self) -> None:
        with pytest.raises(sx.UnsupportedError, match=r'mesh of 4 devices \("x"=2, "y"=2\).*8 partitions') as caught:
            sx.compile(PRODUCT, num_partitions=8)
        assert "num_partitions=4" in str(caught.value)

    def test_other_order_of_devices(self) -> None:
        text = PRODUCT.replace('"y"=2]>', '"y"=2], device_ids=[3, 1, 0, 2]>')
        executable = sx.compile(text)
        np.testing.assert_array_equal(executable(X), X @ X.T)
        corners = {3: X[:4, :2], 1: X[:4, 2:], 0: X[4:, :2], 2: X[4:, 2:]}
        results = executable.execute_replicated([[corners[d].copy()] for d in range(4)])
        np.testing.assert_array_equal(results[3][0], (X @ X.T)[:4])
        np.testing.assert_array_equal(results[0][0], (X @ X.T)[4:])


class TestParts:
    def test_what_is_made_in_parts(self) -> None:
        """Constants of complex numbers, numbers that bf16 rounds, bits of a scalar, and random numbers."""
        text = (
            HEAD
            + """
          func.func public @main(%x: tensor<8xcomplex<f32>> {sdy.sharding = #sdy.sharding<@grid, [{"x"}]>},
                                 %s: tensor<i32>)
              -> (tensor<8xcomplex<f32>> {sdy.sharding = #sdy.sharding<@grid, [{"x"}]>}, tensor<complex<f32>>,
                  tensor<1028xbf16> {sdy.sharding = #sdy.sharding<@grid, [{"x", "y"}]>},
                  tensor<4xi8> {sdy.sharding = #sdy.sharding<@grid, [{"x"}]>},
                  tensor<2xcomplex<f32>> {sdy.sharding = #sdy.sharding<@grid, [{"y"}]>},
                  tensor<8xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}]>}, tensor<8xf32>) {
            %i = stablehlo.constant dense<(1.0, 2.0)> : tensor<8xcomplex<f32>>
            %sum = stablehlo.add %x, %i : tensor<8xcomplex<f32>>
            %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
            %all = stablehlo.reduce(%sum init: %zero) applies stablehlo.add across dimensions = [0]
                : (tensor<8xcomplex<f32>>, tensor<complex<f32>>) -> tensor<complex<f32>>
            %numbers = stablehlo.iota dim = 0 : tensor<1028xbf16>
            %bits = stablehlo.bitcast_convert %s : (tensor<i32>) -> tensor<4xi8>
            %two = stablehlo.constant dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f32>>
            %low = stablehlo.constant dense<0.0> : tensor<f32>
            %high = stablehlo.constant dense<1.0> : tensor<f32>
            %shape = stablehlo.constant dense<8> : tensor<1xi64>
            %random = stablehlo.rng %low, %high, %shape, distribution = UNIFORM
                {sdy.sharding = #sdy.sharding_per_value<[<@grid, [{"x"}]>]>}
                : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<8xf32>
            return %sum, %all, %numbers, %bits, %two, %random, %random : tensor<8xcomplex<f32>>, tensor<complex<f32>>,
                tensor<1028xbf16>, tensor<4xi8>, tensor<2xcomplex<f32>>, tensor<8xf32>, tensor<8xf32>
          }
        }
        """
        )
        x = np.arange(8).astype(np.complex64) * 1j
        with pytest.warns(sx.ReplicationWarning, match=r"stablehlo.rng"):
            executable = sx.compile(text)
        summed, both, numbers, bits, two, parts, random = executable.execute([x, np.int32(0x01020304)])
        np.testing.assert_array_equal(summed, x + (1 + 2j))
        assert both == (x + (1 + 2j)).sum()
        np.testing.assert_array_equal(numbers, np.arange(1028).astype(numbers.dtype))
        assert bits.tolist() == [4, 3, 2, 1]
        np.testing.assert_array_equal(two, np.array([1 + 2j, 3 + 4j], np.complex64))
        np.testing.assert_array_equal(parts, random)


class TestWarnings:
    def test_what_is_computed_whole_is_named(self) -> None:
        text = (
            HEAD
            + """
          func.func public @main(%x: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@grid, [{"x"}, {}]>})
              -> tensor<8x4xf32> {
            %r = stablehlo.reverse %x, dims = [0] : tensor<8x4xf32>
            return %r : tensor<8x4xf32>
          }
        }
        """
        )
        with pytest.warns(sx.ReplicationWarning, match=r"stablehlo.reverse: each of 4 devices computes all of it"):
            executable = sx.compile(text)
        np.testing.assert_array_equal(executable(X), X[::-1])

    def test_nothing_to_warn_of(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sx.compile(PRODUCT)


def sums_program(body: str, argument: str, result: str, shape: str = "tensor<8x8xf32>") -> str:
    """A program of one parameter %x of 8x4, and a result, with these shardings."""
    return f"""{HEAD}
      func.func public @main(%x: tensor<8x4xf32> {{sdy.sharding = #sdy.sharding<@grid, {argument}>}})
          -> ({shape} {{sdy.sharding = #sdy.sharding<@grid, {result}>}}) {{
        {body}
        return %r : {shape}
      }}
    }}"""


TIMES_ITSELF = """%p = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
            : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32>"""
SUMS = '[{}, {}], unreduced={"y"}'


class TestSums:
    """Arrays that are the sum of what the devices along an axis hold."""

    def test_a_result_stays_a_sum(self) -> None:
        text = sums_program(TIMES_ITSELF.replace("%p", "%r"), '[{}, {"y"}]', SUMS)
        executable = sx.compile(text)
        assert executable.output_shardings is not None
        assert executable.output_shardings[0].summands == (0, 1, 0, 1)
        assert "all_reduce" not in executable.ir("stablehlo")
        np.testing.assert_array_equal(executable(X), X @ X.T)
        halves = [X[:, :2].copy(), X[:, 2:].copy()]
        for device, (result,) in enumerate(executable.execute_replicated([[halves[d % 2]] for d in range(4)])):
            np.testing.assert_array_equal(result, halves[device % 2] @ halves[device % 2].T)

    def test_a_parameter_is_a_sum(self, tmp_path: Path) -> None:
        """Whole arrays are summands with zeros; the shardings are saved with the program."""
        executable = sx.compile(
            sums_program("%r = stablehlo.multiply %x, %x : tensor<8x4xf32>", SUMS, "[{}, {}]", "tensor<8x4xf32>")
        )
        np.testing.assert_array_equal(executable(X), X * X)
        parts = [[X], [X + 1], [X], [X + 1]]
        for (result,) in executable.execute_replicated(parts):
            np.testing.assert_array_equal(result, (2 * X + 1) ** 2)
        executable.save(tmp_path / "program")
        np.testing.assert_array_equal(sx.load_executable(tmp_path / "program")(X), X * X)

    def test_products_are_added_up_once(self) -> None:
        """Operations that are linear in the sums run on each summand; an offset is added on one device."""
        body = f"""{TIMES_ITSELF}
            %q = sdy.sharding_constraint %p <@grid, {SUMS}> : tensor<8x8xf32>
            %one = stablehlo.constant dense<1.0> : tensor<8x8xf32>
            %s = stablehlo.add %q, %one {{sdy.sharding = #sdy.sharding_per_value<[<@grid, {SUMS}>]>}} : tensor<8x8xf32>
            %t = stablehlo.multiply %s, %p {{sdy.sharding = #sdy.sharding_per_value<[<@grid, {SUMS}>]>}}
                : tensor<8x8xf32>
            %u = stablehlo.transpose %t, dims = [1, 0]
                {{sdy.sharding = #sdy.sharding_per_value<[<@grid, {SUMS}>]>}} : (tensor<8x8xf32>) -> tensor<8x8xf32>
            %r = sdy.sharding_constraint %u <@grid, [{{}}, {{}}]> : tensor<8x8xf32>"""
        executable = sx.compile(sums_program(body, '[{}, {"y"}]', "[{}, {}]"))
        np.testing.assert_array_equal(executable(X), ((X @ X.T + 1) * (X @ X.T)).T)
        assert executable.ir("stablehlo").count("stablehlo.all_reduce") == 2  # of %p, a factor, and of %u

    def test_a_loop_adds_summands(self) -> None:
        body = f"""%zero = stablehlo.constant dense<0.0> : tensor<8x8xf32>
            %start = sdy.sharding_constraint %zero <@grid, {SUMS}> : tensor<8x8xf32>
            %c0 = stablehlo.constant dense<0> : tensor<i32>
            %w:2 = stablehlo.while(%i = %c0, %a = %start) : tensor<i32>, tensor<8x8xf32>
            cond {{
              %c3 = stablehlo.constant dense<3> : tensor<i32>
              %more = stablehlo.compare LT, %i, %c3 : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %more : tensor<i1>
            }} do {{
              {TIMES_ITSELF}
              %q = sdy.sharding_constraint %p <@grid, {SUMS}> : tensor<8x8xf32>
              %b = stablehlo.add %a, %q {{sdy.sharding = #sdy.sharding_per_value<[<@grid, {SUMS}>]>}} : tensor<8x8xf32>
              %c1 = stablehlo.constant dense<1> : tensor<i32>
              %j = stablehlo.add %i, %c1 : tensor<i32>
              stablehlo.return %j, %b : tensor<i32>, tensor<8x8xf32>
            }}
            %s = sdy.sharding_constraint %w#1 <@grid, {SUMS}> : tensor<8x8xf32>
            %r = sdy.sharding_constraint %s <@grid, [{{}}, {{}}]> : tensor<8x8xf32>"""
        executable = sx.compile(sums_program(body, '[{}, {"y"}]', "[{}, {}]"))
        np.testing.assert_array_equal(executable(X), 3 * (X @ X.T))
        text = executable.ir("stablehlo")
        assert text.count("stablehlo.all_reduce") == 1
        assert text.index("stablehlo.all_reduce") > text.index("stablehlo.while")

    @pytest.mark.parametrize("before", ['[{}, {"y"}]', "[{}, {}]", '[{"x"}, {"y"}]', '[{"x", "y"}, {}]'])
    @pytest.mark.parametrize("after", [SUMS, '[{"x"}, {}], unreduced={"y"}', '[{}, {}], unreduced={"x", "y"}'])
    def test_parts_become_summands_and_back(self, before: str, after: str) -> None:
        there = sx.compile(
            sums_program(f"%r = sdy.reshard %x <@grid, {after}> : tensor<8x4xf32>", before, after, "tensor<8x4xf32>")
        )
        np.testing.assert_array_equal(there(X), X)
        assert "all_gather" not in there.ir("stablehlo") or before == '[{"x", "y"}, {}]' or '"x"' in before
        back = sx.compile(
            sums_program(f"%r = sdy.reshard %x <@grid, {before}> : tensor<8x4xf32>", after, before, "tensor<8x4xf32>")
        )
        np.testing.assert_array_equal(back(X), X)

    def test_zeros_keep_their_signs(self) -> None:
        """Of parameters, of arrays that become summands, of what is added on one device, and of results."""
        body = f"""%p = sdy.reshard %x <@grid, {SUMS}> : tensor<8x4xf32>
            %q = sdy.reshard %p <@grid, [{{}}, {{}}]> : tensor<8x4xf32>
            %c = sdy.reshard %q <@grid, [{{}}, {{"y"}}]> : tensor<8x4xf32>
            %d = sdy.reshard %c <@grid, {SUMS}> : tensor<8x4xf32>
            %r = sdy.reshard %d <@grid, {SUMS}> : tensor<8x4xf32>"""
        for before in (SUMS, "[{}, {}]"):
            for after in (SUMS, "[{}, {}]"):
                made = sx.compile(
                    sums_program(
                        body.replace(f"%d <@grid, {SUMS}>", f"%d <@grid, {after}>"), before, after, "tensor<8x4xf32>"
                    )
                )
                assert np.signbit(made(np.full((8, 4), -0.0, np.float32))).all()

    @pytest.mark.parametrize(
        "rounded",
        [
            "%r = stablehlo.convert %x {SUMS} : (tensor<8x4xf32>) -> tensor<8x4xi32>",
            """%i = stablehlo.convert %x : (tensor<8x4xf32>) -> tensor<8x4xi32>
            %j = sdy.sharding_constraint %i <@grid, [{}, {}], unreduced={"y"}> : tensor<8x4xi32>
            %two = stablehlo.constant dense<2> : tensor<8x4xi32>
            %r = stablehlo.divide %j, %two {SUMS} : tensor<8x4xi32>""",
        ],
    )
    def test_integers_are_rounded_once(self, rounded: str) -> None:
        """Half and half again are one, though each by itself would be dropped."""
        sums = f"{{sdy.sharding = #sdy.sharding_per_value<[<@grid, {SUMS}>]>}}"
        text = sums_program(rounded.replace("{SUMS}", sums), SUMS, SUMS, "tensor<8x4xi32>")
        executable = sx.compile(text)
        halves = [[np.full((8, 4), number, np.float32)] for number in (1.5, 1.5, 1.5, 1.5)]
        results = executable.execute_replicated(halves)
        total = results[0][0] + results[1][0]
        np.testing.assert_array_equal(total, np.full((8, 4), 3 // (2 if "divide" in rounded else 1)))

    def test_a_maximum_is_not_linear(self) -> None:
        body = """%n = stablehlo.constant dense<0xFF800000> : tensor<f32>
            %r = stablehlo.reduce(%x init: %n) applies stablehlo.maximum across dimensions = [1]
                {sdy.sharding = #sdy.sharding_per_value<[<@grid, [{}], unreduced={"y"}>]>}
                : (tensor<8x4xf32>, tensor<f32>) -> tensor<8xf32>"""
        executable = sx.compile(sums_program(body, SUMS, '[{}], unreduced={"y"}', "tensor<8xf32>"))
        np.testing.assert_array_equal(executable(X), X.max(1))


class TestRefused:
    def test_sums_that_are_not_added_up(self) -> None:
        text = (
            HEAD
            + """
          func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@grid, [{}]>}) -> tensor<8xf32> {
            %r = sdy.all_reduce {"x"} %x out_sharding=<@grid, [{}]> : tensor<8xf32>
            return %r : tensor<8xf32>
          }
        }
        """
        )
        with pytest.raises(sx.UnsupportedError, match="sums that are not added up"):
            sx.compile(text)


class TestProgramsOfDevices:
    def test_a_mesh_alone_partitions_nothing(self) -> None:
        """Groups of devices may be written as axes of a mesh in a program that each device runs as it stands."""
        text = (
            HEAD
            + """
          func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
            %r = "stablehlo.all_reduce"(%x) <{
              channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
              replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>
            }> ({
            ^bb0(%a: tensor<f32>, %b: tensor<f32>):
              %s = stablehlo.add %a, %b : tensor<f32>
              stablehlo.return %s : tensor<f32>
            }) : (tensor<2xf32>) -> tensor<2xf32>
            return %r : tensor<2xf32>
          }
        }
        """
        )
        arrays = [[np.full(2, d, np.float32)] for d in range(4)]
        results = sx.compile(text).execute_replicated(arrays)
        assert [float(r[0][0]) for r in results] == [2, 4, 2, 4]

    def test_groups_as_axes_in_a_manual_computation(self) -> None:
        text = (
            HEAD
            + """
          func.func public @main(%x: tensor<8x4xf32>) -> tensor<4x4xf32> {
            %0 = sdy.manual_computation(%x) in_shardings=[<@grid, [{"x"}, {"y"}]>] out_shardings=[<@grid, [{}, {"y"}]>]
                manual_axes={"x", "y"} (%p: tensor<4x2xf32>) {
              %r = "stablehlo.all_reduce"(%p) <{
                channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
                replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @grid,
                                                                    axes = [#stablehlo.axis_ref<name = "x">]>
              }> ({
              ^bb0(%a: tensor<f32>, %b: tensor<f32>):
                %s = stablehlo.add %a, %b : tensor<f32>
                stablehlo.return %s : tensor<f32>
              }) : (tensor<4x2xf32>) -> tensor<4x2xf32>
              sdy.return %r : tensor<4x2xf32>
            } : (tensor<8x4xf32>) -> tensor<4x4xf32>
            return %0 : tensor<4x4xf32>
          }
        }
        """
        )
        np.testing.assert_array_equal(sx.compile(text)(X), X[:4] + X[4:])

    def test_groups_as_a_part_of_an_axis(self) -> None:
        """`x` of four devices is 2 x 2; of its first half the groups are {0, 2} and {1, 3}."""
        half = '#stablehlo.axis_ref<name = "x", sub_axis_info = (1)2>'
        result = sx.compile(summed_along(half)).execute_replicated([[X[2 * d : 2 * d + 2].copy()] for d in range(4)])
        np.testing.assert_array_equal(result[1][0], X[2:4] + X[6:])

    def test_groups_of_an_axis_that_is_not_there(self) -> None:
        with pytest.raises(sx.VerificationError, match="no axis 'z': it has 'x'"):
            sx.compile(summed_along('#stablehlo.axis_ref<name = "z">'))


def summed_along(axis: str) -> str:
    """A sum along an axis of a mesh of four devices, written in a manual computation."""
    return f"""
    module @sharded attributes {{mhlo.num_partitions = 4 : i32}} {{
      sdy.mesh @line = <["x"=4]>
      func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {{
        %0 = sdy.manual_computation(%x) in_shardings=[<@line, [{{"x"}}, {{}}]>] out_shardings=[<@line, [{{"x"}}, {{}}]>]
            manual_axes={{"x"}} (%p: tensor<2x4xf32>) {{
          %r = "stablehlo.all_reduce"(%p) <{{
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
            replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @line, axes = [{axis}]>
          }}> ({{
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %s = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %s : tensor<f32>
          }}) : (tensor<2x4xf32>) -> tensor<2x4xf32>
          sdy.return %r : tensor<2x4xf32>
        }} : (tensor<8x4xf32>) -> tensor<8x4xf32>
        return %0 : tensor<8x4xf32>
      }}
    }}
    """


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::stablexla.dialects.errors.ReplicationWarning")
def test_random(seed: int) -> None:
    exported, arrays = random_program(seed)
    kept = [arrays[i] for i in exported.module_kept_var_idx]
    module = exported.mlir_module_serialized
    wanted = sx.compile(module, num_partitions=1).execute(kept)
    for result, want in zip(sx.compile(module).execute(kept), wanted, strict=True):
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_nothing_is_left_in_the_context() -> None:
    """Partitioning many modules leaves no operation that something else still uses."""
    import jaxlib.mlir.ir as ir

    from stablexla.targets.stablehlo.partition import partitioned

    with stablehlo_context():
        for _ in range(20):
            made = partitioned(ir.Module.parse(PRODUCT))
            assert made is not None
            assert made.module.operation.verify()
