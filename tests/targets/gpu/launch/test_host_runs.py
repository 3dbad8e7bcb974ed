"""Whole programs under the real runtime on the simulated driver: what `main` does between its launches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.programs import numbers, program, softmax

CHIP = "gpu:sm_80"


def below(limit: int) -> Callable[[sx.XlaOp], sx.XlaOp]:
    return lambda state: sx.lt(state[0], state.builder.constant(limit, "s32"))


def total(v: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce(v, v.builder.constant(0.0), sx.add, tuple(range(len(v.shape.dimensions))))


def loop(b: sx.XlaBuilder, *start: sx.XlaOp, turn: Callable[..., Any], turns: int) -> list[sx.XlaOp]:
    def body(state: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple((state[0] + 1, *turn(*(state[i + 1] for i in range(len(start))))))

    last = sx.while_(below(turns), body, sx.tuple((b.constant(0, "s32"), *start)))
    return [last[i] for i in range(len(start) + 1)]


def newton(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
    """Goes on until a number on the device is small."""

    def wide(state: sx.XlaOp) -> sx.XlaOp:
        return sx.gt(state[1], state.builder.constant(1e-3))

    def step(state: sx.XlaOp) -> sx.XlaOp:
        v, _ = state
        better = (v + 2.0 / v) * 0.5
        return sx.tuple((better, sx.reduce(sx.abs(better * better - 2.0), v.builder.constant(0.0), sx.max, (0,))))

    last = sx.while_(wide, step, sx.tuple((x, b.constant(1.0))))
    return [last[0], last[1]]


def branch(b: sx.XlaBuilder, i: sx.XlaOp, x: sx.XlaOp) -> Any:
    branches = [lambda v: sx.tuple((sx.exp(v), total(v))), lambda v: sx.tuple((v * 2.0, total(v * v)))]
    made = sx.conditional(i, branches, [x, x])
    return [made[0], made[1] * 2.0, x * made[1]]


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "elementwise": (lambda b, x, y: (sx.tanh(x) * y, x + y), (numbers(9, 33), numbers(9, 33, seed=1))),
    "softmax": (softmax, (numbers(4, 70),)),
    "dot": (lambda b, x, y: sx.exp(sx.dot(x, y)), (numbers(18, 20) / 8, numbers(20, 17, seed=1) / 8)),
    "scalars": (lambda b, s, t: (s + t, s * t, t), (np.float32(2.5), np.float32(-3))),
    "scalar-for-kernels": (lambda b, x, s: (x * s, total(x) / s), (numbers(40), np.float32(1.5))),
    "complex-scalar": (lambda b, x, s: x * (s * s), (numbers(5).astype(np.complex64), np.complex64(1 + 2j))),
    "index-from-device": (
        lambda b, x, i: sx.dynamic_slice(x, (i + 1, b.constant(0, "s32")), (2, 3)),
        (numbers(6, 3), np.int32(2)),
    ),
    "element-types": (
        lambda b, x, p: (sx.convert_element_type(x, "bf16"), sx.convert_element_type(x, "s8"), sx.not_(p)),
        (numbers(20), np.array(True)),
    ),
    "counter": (lambda b, x: loop(b, x, turn=lambda v: [sx.tanh(v) * 1.5], turns=40), (numbers(12),)),
    "carried-numbers": (
        lambda b, x, s: loop(b, x, s, turn=lambda v, a: [v * 0.5 + a, a * 0.5 + total(v)], turns=40),
        (numbers(12), np.float32(1)),
    ),
    "numbers-alone": (lambda b, s: loop(b, s, turn=lambda a: [a * 0.5 + 1.0], turns=40), (np.float32(7),)),
    "until-small": (newton, (np.abs(numbers(10)) + 0.5,)),
    "nested": (
        lambda b, x: loop(
            b, x, turn=lambda v: [loop(v.builder, v, turn=lambda w: [sx.sin(w) + 1.0], turns=33)[1] * 0.5], turns=35
        ),
        (numbers(6),),
    ),
    "swapped": (
        lambda b, x, y: loop(b, x, y, turn=lambda v, w: [w, sx.cos(v)], turns=33),
        (numbers(8), numbers(8, seed=1)),
    ),
    "first-branch": (branch, (np.int32(0), numbers(20))),
    "second-branch": (branch, (np.int32(1), numbers(20))),
    "nothing": (lambda b, x, y: (x, sx.concatenate((y, y), 0)), (numbers(0, 3), numbers(0, 2))),
    "constants": (lambda b, x: (x + b.constant(np.arange(12, dtype=np.float32)), b.constant(3)), (numbers(12),)),
    "the-same-twice": (lambda b, x: (x, x, x * 2.0), (numbers(7),)),
}


@pytest.fixture
def _host_functions() -> Iterator[None]:
    sx.register_custom_call("test_host_runs_half", lambda x: x / 2)
    sx.register_custom_call("test_host_runs_fail", lambda x: 1 / 0)
    yield
    sx.unregister_custom_call("test_host_runs_half")
    sx.unregister_custom_call("test_host_runs_fail")


def check(computation: sx.XlaComputation, *arrays: Any, ulp: float = 8) -> sx.Executable:
    executable = sx.compile(computation, target=CHIP)
    wanted = sx.compile(computation).execute(list(arrays))
    for actual, other in zip(executable.execute(list(arrays)), wanted, strict=True):
        assert_same(actual, other, ulp=ulp, scale=1e-6)
    return executable


@pytest.mark.usefixtures("simulated_gpu")
class TestPrograms:
    @pytest.mark.parametrize("name", PROGRAMS)
    def test_results(self, name: str) -> None:
        make, arrays = PROGRAMS[name]
        check(program(make, *map(np.asarray, arrays)), *arrays)

    def test_called_again(self) -> None:
        make, arrays = PROGRAMS["carried-numbers"]
        executable = check(program(make, *map(np.asarray, arrays)), *arrays)
        again = executable.execute([arrays[0], np.float32(2)])
        wanted = sx.compile(program(make, *map(np.asarray, arrays))).execute([arrays[0], np.float32(2)])
        for actual, other in zip(again, wanted, strict=True):
            assert_same(actual, other, ulp=8, scale=1e-6)

    def test_a_tuple_of_arguments(self) -> None:
        b = sx.XlaBuilder("pair")
        pair = b.parameter(0, sx.Shape.tuple([sx.f32[4], sx.Shape.tuple([sx.f32[()], sx.s32[3]])]))
        inner = pair[1]
        computation = b.build(sx.tuple((pair[0] * inner[0], sx.tuple((inner[1] + 1, inner[0])))))
        given = (numbers(4), (np.float32(2), np.arange(3, dtype=np.int32)))
        made, (numbered, scale) = sx.compile(computation, target=CHIP)(given)
        assert_same(made, given[0] * 2)
        assert_same(numbered, np.arange(1, 4, dtype=np.int32))
        assert_same(scale, np.float32(2))

    def test_donated_arguments_keep_their_values_on_the_host(self) -> None:
        text = """func.func @main(%x: tensor<6xf32> {tf.aliasing_output = 0 : i32}) -> tensor<6xf32> {
          %0 = stablehlo.negate %x : tensor<6xf32>
          return %0 : tensor<6xf32>
        }"""
        executable = sx.compile(text, target=CHIP)
        assert executable.aliases == {0: 0}
        x = numbers(6)
        (made,) = executable.execute([x], donate=True)
        assert_same(made, -x)
        assert_same(x, numbers(6))

    def test_sizes_known_when_it_runs(self) -> None:
        text = """func.func @main(%x: tensor<?xf32, #stablehlo.bounds<10>>) -> tensor<?xf32, #stablehlo.bounds<10>> {
          %0 = stablehlo.exponential %x : tensor<?xf32, #stablehlo.bounds<10>>
          return %0 : tensor<?xf32, #stablehlo.bounds<10>>
        }"""
        executable = sx.compile(text, target=CHIP)
        for size in (10, 3, 0):
            assert_same(executable(numbers(size)), np.exp(numbers(size)), ulp=2)
        assert_same(executable(sx.gpu.put(numbers(4))), np.exp(numbers(4)), ulp=2)

    def test_nothing_is_waited_for_without_need(self) -> None:
        """Arrays on the device in, arrays on the device out; numbers, counters and branches of the host between."""
        make, arrays = PROGRAMS["carried-numbers"]
        executable = sx.compile(program(make, *map(np.asarray, arrays)), target=CHIP)
        given = [sx.gpu.put(np.asarray(a)) for a in arrays]
        wanted = executable.execute(list(arrays))
        driver = simulator.driver()
        names = (b"cuStreamSynchronize", b"cuCtxSynchronize", b"cuEventSynchronize", b"cuMemcpyDtoHAsync_v2")
        before = [driver.simulator_calls(name) for name in names]
        made = executable.execute(given)
        assert [driver.simulator_calls(name) for name in names] == before
        for actual, other in zip(made, wanted, strict=True):
            assert isinstance(actual, sx.gpu.DeviceArray)
            assert_same(np.asarray(actual), other)


@pytest.mark.usefixtures("simulated_gpu", "_host_functions")
@pytest.mark.filterwarnings("ignore:.*run on the host")
class TestHostFunctions:
    def test_between_kernels(self) -> None:
        def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
            return sx.exp(sx.custom_call("test_host_runs_half", (sx.tanh(x),), sx.f32[10]))

        check(program(make, numbers(10)), numbers(10))

    def test_in_a_loop(self) -> None:
        def halved(v: sx.XlaOp) -> list[sx.XlaOp]:
            return [sx.custom_call("test_host_runs_half", (v + 1.0,), sx.f32[4])]

        check(program(lambda b, x: loop(b, x, turn=halved, turns=40), numbers(4)), numbers(4))

    def test_an_error_ends_the_run(self) -> None:
        def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
            return sx.exp(sx.custom_call("test_host_runs_fail", (x + 1.0,), sx.f32[10])) * 2.0

        executable = sx.compile(program(make, numbers(10)), target=CHIP)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                executable(numbers(10))

    def test_random_numbers_follow_the_seed(self) -> None:
        def make(b: sx.XlaBuilder) -> Any:
            return sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[50])

        executable, other = (sx.compile(program(make), target=target) for target in (CHIP, "cpu"))
        for each in (executable, other):
            each.seed(7)
        first, second = executable(), executable()
        assert_same(first, other())
        assert_same(second, other())
        assert (first != second).any()

    def test_matrices_are_shared_by_threads(self) -> None:
        text = """func.func @main(%x: tensor<300x3x3xf32>) -> (tensor<300x3x3xf32>, tensor<300xi32>) {
          %y = stablehlo.add %x, %x : tensor<300x3x3xf32>
          %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%y) {
            api_version = 4 : i32, backend_config = {uplo = 76 : ui8},
            operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>],
            result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>],
            output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0],
              operand_index = 0, operand_tuple_indices = []>]
          } : (tensor<300x3x3xf32>) -> (tensor<300x3x3xf32>, tensor<300xi32>)
          return %0#0, %0#1 : tensor<300x3x3xf32>, tensor<300xi32>
        }"""
        half = numbers(300, 3, 3)
        x = half @ half.transpose(0, 2, 1) + 3 * np.eye(3, dtype=np.float32)
        executable = sx.compile(text, target=CHIP)
        assert "stablexla.grain" in executable.ir("host")
        for actual, wanted in zip(executable(x), sx.compile(text)(x), strict=True):
            assert_same(actual, wanted, ulp=4)

    def test_feeds(self) -> None:
        b = sx.XlaBuilder("fed")
        got = b.infeed(sx.f32[5])
        sx.outfeed(got * 2.0)
        executable = sx.compile(b.build(got + 1.0), target=CHIP)
        executable.transfer_to_infeed(numbers(5))
        assert_same(executable(), numbers(5) + 1)
        assert_same(executable.transfer_from_outfeed(), numbers(5) * 2)

    def test_what_a_function_keeps_stays(self) -> None:
        kept: list[np.ndarray[Any, Any]] = []

        def keep(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            kept.append(x)
            return x + 1

        sx.register_custom_call("test_host_runs_half", keep)
        computation = program(lambda b, x: sx.custom_call("test_host_runs_half", (x * 2.0,), sx.f32[50]), numbers(50))
        executable = sx.compile(computation, target=CHIP)
        executable(numbers(50))
        executable(numbers(50, seed=1))
        assert_same(kept[0], numbers(50) * 2)
