"""Executables of several devices: how they are called, what they say of themselves, what becomes of wrong calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.threads import in_threads

X = np.array([1, 2], np.float32)
TEXT = """
module @sum attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 3 : i32} {
  func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<ui32>, tensor<ui32>) {
    %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    %r = stablehlo.replica_id : tensor<ui32>
    %p = stablehlo.partition_id : tensor<ui32>
    return %0, %r, %p : tensor<2xf32>, tensor<ui32>, tensor<ui32>
  }
}
"""


def compiled(make: Callable[..., Any], *shapes: sx.Shape, replicas: int = 2, partitions: int = 1) -> sx.Executable:
    """Of a program that `make(builder, *parameters)` builds."""
    b = sx.XlaBuilder("program")
    root = make(b, *(b.parameter(i, shape, name=f"x{i}") for i, shape in enumerate(shapes)))
    computation = b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)
    return sx.compile(computation, num_replicas=replicas, num_partitions=partitions)


def total(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    return sx.all_reduce(x, sx.add)


def values(results: Any) -> list[Any]:
    return [[a.tolist() for a in own] for own in results]


class TestCounts:
    def test_the_module_says_how_many(self) -> None:
        executable = sx.compile(TEXT)
        assert (executable.num_replicas, executable.num_partitions, executable.num_devices) == (2, 3, 6)
        assert executable.local_devices == (0, 1, 2, 3, 4, 5)
        results = executable.execute_replicated([[X * 10**d] for d in range(6)])
        for device, (summed, replica, partition) in enumerate(results):
            assert (replica.tolist(), partition.tolist()) == divmod(device, 3)
            other = (device + 3) % 6
            np.testing.assert_array_equal(summed, X * 10**device + X * 10**other)

    def test_arguments_go_before_the_module(self) -> None:
        executable = sx.compile(TEXT, num_partitions=1)
        assert executable.num_devices == 2
        assert "mhlo.num_partitions = 1" in executable.ir("source")
        assert values(executable.execute_replicated([[X], [X]]))[1] == [[2, 4], 1, 0]

    def test_the_module_is_left_as_it_is(self) -> None:
        b = sx.XlaBuilder("program")
        computation = b.build(total(b, b.parameter(0, sx.f32[2])))
        before = str(computation)
        executable = sx.compile(computation, num_replicas=2)
        assert str(computation) == before
        assert "mhlo.num_replicas = 2" in executable.ir("source")

    @pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "2", 2**31])
    def test_what_is_no_number(self, wrong: Any) -> None:
        with pytest.raises(sx.CompileError, match="num_replicas must be a number from 1 on"):
            sx.compile(TEXT, num_replicas=wrong)
        with pytest.raises(sx.CompileError, match="num_partitions must be a number from 1 on"):
            sx.compile(TEXT, num_partitions=wrong)

    def test_more_than_can_be_counted(self) -> None:
        with pytest.raises(sx.CompileError, match="more devices than"):
            sx.compile(TEXT, num_replicas=1 << 20, num_partitions=1 << 20)

    def test_a_module_that_says_nonsense(self) -> None:
        with pytest.raises(sx.VerificationError, match=r"mhlo\.num_replicas is"):
            sx.compile(TEXT.replace("mhlo.num_replicas = 2 : i32", 'mhlo.num_replicas = "2"'))

    def test_what_it_says_of_itself(self) -> None:
        executable = compiled(total, sx.f32[2], replicas=2, partitions=2)
        assert repr(executable).startswith("Executable('program', (f32[2]) -> (f32[2]), target='cpu'")
        assert repr(executable).endswith(", num_replicas=2, num_partitions=2)")
        assert "num_replicas=2, num_partitions=2" in executable._repr_html_()
        assert "num_replicas" not in repr(compiled(total, sx.f32[2], replicas=1))


class TestArguments:
    def test_the_number_of_devices(self) -> None:
        with pytest.raises(sx.ExecutionError, match=r"runs on 2 devices, but arguments for 1 came"):
            compiled(total, sx.f32[2]).execute_replicated([[X]])

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ([X.astype(np.int32)], r"program: device 1: parameter 0 \(x0\) takes float32\[2\], but an array of int32"),
            ([X[:1]], r"program: device 1: parameter 0 \(x0\) takes float32\[2\]"),
            ([], "program: device 1: takes 1 argument .*, but 0 came"),
            ([X, X], "program: device 1: takes 1 argument .*, but 2 came"),
            (X, "device 1 takes a list of arguments, but a ndarray came"),
            (None, "device 1 takes a list of arguments, but a NoneType came"),
        ],
    )
    def test_what_does_not_fit_names_the_device(self, wrong: Any, message: str) -> None:
        executable = compiled(total, sx.f32[2])
        with pytest.raises(sx.ExecutionError, match=message):
            executable.execute_replicated([[X], wrong])
        assert values(executable.execute_replicated([[X], [X]])) == [[[2, 4]]] * 2

    def test_a_call_of_one_device_is_refused(self) -> None:
        executable = compiled(total, sx.f32[2])
        for call in (lambda: executable(X), lambda: executable.execute([X])):
            with pytest.raises(sx.ExecutionError, match="runs on 2 devices, 2 of them in this process") as raised:
                call()
            assert "execute_replicated" in str(raised.value)

    def test_anything_that_an_array_can_be_made_of(self) -> None:
        executable = compiled(lambda b, x, y: sx.all_reduce(x * y, sx.add), sx.f32[2], sx.f32[()])
        strided = np.arange(4, dtype=np.float32)[::2]
        assert values(executable.execute_replicated([[strided, 2], (X, 0.5)])) == [[[0.5, 5]]] * 2

    def test_tuples(self) -> None:
        b = sx.XlaBuilder("program")
        pair = b.parameter(0, sx.Shape.tuple([sx.f32[2], sx.f32[2]]), name="pair")
        x, y = sx.get_tuple_element(pair, 0), sx.get_tuple_element(pair, 1)
        executable = sx.compile(b.build(sx.tuple([sx.all_reduce(x, sx.add), y])), num_replicas=2)
        wanted = [[[2, 4], [2, 4]], [[2, 4], [3, 6]]]
        assert values(executable.execute_replicated([[(X, 2 * X)], [(X, 3 * X)]])) == wanted
        assert values(executable.execute_replicated([[X, 2 * X], [X, 3 * X]])) == wanted
        with pytest.raises(sx.ExecutionError, match="program: device 1: parameter 0 takes a tuple"):
            executable.execute_replicated([[(X, X)], [(X,)]])

    def test_no_arguments_and_no_results(self) -> None:
        assert values(compiled(lambda b: b.constant(X)).execute_replicated([[], []])) == [[[1, 2]]] * 2


def test_sizes_at_run_time_are_each_devices_own() -> None:
    text = """module @program {
      func.func @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>> {
        %0 = stablehlo.add %x, %x : tensor<?xf32, #stablehlo.bounds<4>>
        return %0 : tensor<?xf32, #stablehlo.bounds<4>>
      }
    }"""
    executable = sx.compile(text, num_replicas=3)
    arguments = [[np.arange(n, dtype=np.float32)] for n in (1, 4, 3)]
    assert values(executable.execute_replicated(arguments)) == [[[0]], [[0, 2, 4, 6]], [[0, 2, 4]]]
    with pytest.raises(sx.ExecutionError, match="program: device 2: parameter 0 takes float32"):
        executable.execute_replicated([*arguments[:2], [np.arange(5, dtype=np.float32)]])


def test_unknown_shapes_are_the_same_on_all_devices() -> None:
    text = TEXT.replace("tensor<2xf32>", "tensor<?xf32>")
    executable = sx.compile(text, num_partitions=1)
    assert repr(executable).endswith("target='cpu', num_replicas=2, num_partitions=1)")
    executable.collective_timeout = 5
    for size in (2, 3):
        x = np.arange(size, dtype=np.float32)
        assert [own[0].tolist() for own in executable.execute_replicated([[x], [x]])] == [(2 * x).tolist()] * 2
        assert executable.specialize([(size,)]).collective_timeout == 5
    with pytest.raises(sx.ExecutionError, match="device 1 was given other shapes than device 0") as raised:
        executable.execute_replicated([[X], [X[:1]]])
    assert "device 1  [1]" in str(raised.value)
    with pytest.raises(sx.ExecutionError, match="runs on 2"):
        executable.execute([X])


def test_donated_arguments_are_each_devices_own() -> None:
    text = """func.func @main(%x: tensor<256xf32> {tf.aliasing_output = 0 : i32}) -> tensor<256xf32> {
      %0 = stablehlo.negate %x : tensor<256xf32>
      return %0 : tensor<256xf32>
    }"""
    executable = sx.compile(text, num_replicas=3)
    assert executable.aliases == {0: 0}
    first = executable.execute_replicated([[np.full(256, d, np.float32)] for d in range(3)])
    places = [own[0].ctypes.data for own in first]
    second = executable.execute_replicated(first, donate=True)
    assert [own[0].ctypes.data for own in second] == places
    assert [own[0][0] for own in second] == [0, 1, 2]
    kept = executable.execute_replicated(second)
    assert not set(places) & {own[0].ctypes.data for own in kept}


def test_random_numbers_are_each_devices_own() -> None:
    def draw(b: sx.XlaBuilder) -> sx.XlaOp:
        return sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[8])

    executable, alone = compiled(draw, replicas=2, partitions=2), compiled(draw, replicas=1)
    executable.seed(7)
    alone.seed(7)
    first, second = (values(executable.execute_replicated([[]] * 4)) for _ in range(2))
    everything = [tuple(own[0]) for own in first + second]
    assert len(set(everything)) == 8
    assert first[0][0] == alone().tolist()
    assert second[0][0] == alone().tolist()
    executable.seed(7)
    assert values(executable.execute_replicated([[]] * 4)) == first


def test_many_runs_at_once() -> None:
    executable = compiled(total, sx.f32[2], replicas=3)

    def work(seed: int) -> None:
        for i in range(20):
            x = np.float32(seed * 100 + i)
            made = values(executable.execute_replicated([[X * x], [X], [X * 2]]))
            assert made == [[[x + 3, 2 * x + 6]]] * 3

    in_threads(work, range(4))


class TestElsewhere:
    """What else can be done with a program for several devices."""

    def test_it_is_saved(self, tmp_path: Path) -> None:
        executable = sx.compile(TEXT)
        executable.save(tmp_path / "sum.sxe")
        loaded = sx.load_executable(tmp_path / "sum.sxe")
        assert ", num_replicas=2, num_partitions=3, " in repr(loaded)
        arguments = [[X * d] for d in range(6)]
        assert values(loaded.execute_replicated(arguments)) == values(executable.execute_replicated(arguments))
        assert loaded.ir("source") == executable.ir("source")
        loaded.save(tmp_path / "again.sxe")
        again = sx.load_executable(tmp_path / "again.sxe")
        assert values(again.execute_replicated(arguments)) == values(executable.execute_replicated(arguments))

    def test_it_is_compiled_in_another_process(self) -> None:
        executable = sx.compile(TEXT, num_partitions=1, options=sx.CompileOptions(isolated=True))
        assert executable.num_devices == 2
        assert values(executable.execute_replicated([[X], [X]]))[0] == [[2, 4], 0, 0]

    def test_one_on_whole_arrays(self, tmp_path: Path) -> None:
        text = """
        module @product attributes {mhlo.num_partitions = 2 : i32} {
          sdy.mesh @mesh = <["x"=2]>
          func.func @main(%a: tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, %b: tensor<4x4xf32>)
              -> (tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
            %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
                : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
            return %0 : tensor<4x4xf32>
          }
        }"""
        a = np.arange(16, dtype=np.float32).reshape(4, 4)
        executable = sx.compile(text)
        executable.save(tmp_path / "product.sxe")
        cached, isolated = sx.CompileOptions(cache=tmp_path), sx.CompileOptions(isolated=True)
        made = [executable, sx.load_executable(tmp_path / "product.sxe"), sx.compile(text, options=isolated)]
        for each in (*made, sx.compile(text, options=cached), sx.compile(text, options=cached)):
            np.testing.assert_array_equal(each(a, a), a @ a)
            ((top,), (bottom,)) = each.execute_replicated([[a[:2], a], [a[2:], a]])
            np.testing.assert_array_equal(np.concatenate([top, bottom]), a @ a)
            assert "sdy.mesh" in each.ir("source")
        assert executable.profile([a, a], runs=2).devices == 2
        assert executable.explain().kernels

    def test_it_can_be_looked_into(self) -> None:
        executable = compiled(total, sx.f32[2])
        assert executable.stages[0] == "source"
        assert "all_reduce" in executable.ir("stablehlo")
        assert [kernel.kind for kernel in executable.kernels] == ["collective"]
        explanation = executable.explain()
        assert [kernel.kind for kernel in explanation.kernels] == ["collective"]
        assert "all_reduce" in str(explanation)

    def test_a_profile_has_all_devices(self) -> None:
        executable = compiled(lambda b, x: sx.all_reduce(sx.exp(x), sx.add), sx.f32[64])
        x = np.ones(64, np.float32)
        profile = executable.profile([[x], [x]], runs=3)
        assert {row.name: row.calls for row in profile.kernels}
        assert all(row.calls == 6 for row in profile.kernels)
        assert "collective" in str(profile)

    def test_it_is_not_compared(self) -> None:
        with pytest.raises(sx.UnsupportedError, match="a program for 2 devices is not compared"):
            compiled(total, sx.f32[2]).compare([X])

    def test_there_is_no_library_of_it(self, tmp_path: Path) -> None:
        from stablexla.compiling.ahead_of_time import compile_library

        with pytest.raises(sx.UnsupportedError, match="the program is for 6 devices"):
            compile_library(TEXT, tmp_path / "sum.o")
