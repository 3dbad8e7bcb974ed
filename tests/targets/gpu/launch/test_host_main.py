"""What `main` becomes: calls of the runtime, with as little going between host and device as can be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.gpu.launch.host_main import is_dense
from stablexla.targets.gpu.launch.launches import LaunchTable

CHIP = "gpu:sm_80"
RUNTIME = re.compile(r"call @stablexla_gpu_(\w+)\(")


def compiled(make: Callable[..., Any], *shapes: Any) -> sx.Executable:
    b = sx.XlaBuilder("program")
    root = make(b, *(b.parameter(i, shape) for i, shape in enumerate(shapes)))
    return sx.compile(b.build(sx.tuple(root) if isinstance(root, list | tuple) else root), target=CHIP)


def main_of(executable: sx.Executable, stage: str = "host") -> str:
    text = executable.ir(stage)
    return text[text.index("@main(") :]


def calls(executable: sx.Executable) -> Counter[str]:
    """How often main calls each function of the runtime."""
    return Counter(RUNTIME.findall(main_of(executable)))


def count_up(limit: Callable[[sx.XlaBuilder, Any], Any]) -> Callable[..., Any]:
    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
        def below(state: sx.XlaOp) -> sx.XlaOp:
            i, v = state
            return sx.lt(i, state.builder.constant(1000, "s32")) & limit(state.builder, v)

        start = sx.tuple((b.constant(0, "s32"), x))
        _, last = sx.while_(below, lambda state: sx.tuple((state[0] + 1, sx.tanh(state[1]) * 2.0)), start)
        return last

    return make


class TestStages:
    def test_main_follows_the_kernels(self) -> None:
        executable = compiled(lambda b, x: sx.exp(x) * 2.0, sx.f32[100])
        assert executable.stages[-5:] == ("gpu", "nvvm", "ptx", "host", "llvm")
        assert "gpu.binary" not in executable.ir("host")
        assert set(re.findall(r"\b(\w+)\.\w+", main_of(executable, "llvm"))) - {"llvm"} <= {"stablexla"}

    def test_a_launch(self) -> None:
        main = main_of(compiled(lambda b, x: sx.exp(x) * 2.0, sx.f32[100_000]))
        assert Counter(RUNTIME.findall(main)) == {"launch": 1}
        (call,) = re.findall(r"@stablexla_gpu_launch\((.*?)\)", main)
        numbers = [re.search(rf"{name} = arith.constant (\d+) : i64", main) for name in call.split(", ")[:4]]
        kernel, blocks, threads, shared = (int(found[1]) for found in numbers if found)
        assert (kernel, shared) == (0, 0)
        assert blocks * threads * 4 >= 100_000

    def test_the_table_of_kernels(self) -> None:
        executable = compiled(lambda b, x, y: sx.exp(sx.dot(x, y)), sx.f32[64, 32], sx.f32[32, 64])
        found = re.search(
            r'stablexla.gpu_kernels = \[\{name = "(\w+)", shared_bytes = (\d+) : i64\}\]', executable.ir("host")
        )
        assert found is not None
        assert f".entry {found[1]}(" in executable.ir("ptx")
        assert int(found[2]) > 0


class TestNumbers:
    """Numbers on the device are read by who needs them: waiting for one costs more than most kernels take."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda b, x, s: sx.exp(x * s),
            lambda b, x, s: x * sx.sqrt(sx.reduce(x, b.constant(0.0), sx.add, (0,)) + s),
            lambda b, x, s: (s + 1.0, s * s, x + s),
            lambda b, x, s: sx.dynamic_slice(x, (sx.convert_element_type(s, "s32"),), (3,)),
            lambda b, x, s: sx.reduce(x, b.constant(0.0), sx.add, (0,)) / s,
        ],
    )
    def test_nothing_is_read_for_kernels(self, make: Callable[..., Any]) -> None:
        assert set(calls(compiled(make, sx.f32[100], sx.f32[()]))) == {"launch"}

    def test_stores_that_follow_one_another_are_one_kernel(self) -> None:
        executable = compiled(lambda b, s, t: (s + 1.0, s * t, t), sx.f32[()], sx.f32[()])
        assert calls(executable) == {"launch": 1}

    def test_what_the_host_knows_is_written(self) -> None:
        executable = compiled(lambda b, x: (sx.exp(x), b.constant(np.int32(5)) + 1), sx.f32[10])
        assert "read" not in calls(executable)

    def test_the_same_number_for_several_calls_is_one_kernel(self) -> None:
        def make(b: sx.XlaBuilder, s: sx.XlaOp, x: sx.XlaOp) -> Any:
            def turn(state: sx.XlaOp) -> sx.XlaOp:
                return sx.tuple((state[0] + 1, sx.tanh(state[1] * s_of(state))))

            def s_of(state: sx.XlaOp) -> Any:
                return sx.reduce(state[1], state.builder.constant(0.0), sx.max, (0,))

            below: Callable[[sx.XlaOp], sx.XlaOp] = lambda state: sx.lt(state[0], state.builder.constant(9, "s32"))  # noqa: E731
            return sx.while_(below, turn, sx.tuple((b.constant(0, "s32"), x * s)))[1]

        assert "read" not in calls(compiled(make, sx.f32[()], sx.f32[64]))


class TestControlFlow:
    def test_a_counter_is_the_hosts(self) -> None:
        found = calls(compiled(count_up(lambda b, v: b.constant(True)), sx.f32[30]))
        assert "read" not in found
        assert found["launch"]

    def test_a_condition_is_one_small_number(self) -> None:
        def small(b: sx.XlaBuilder, v: sx.XlaOp) -> sx.XlaOp:
            return sx.lt(sx.reduce(v, b.constant(0.0), sx.add, (0,)), b.constant(1e6))

        main = main_of(compiled(count_up(small), sx.f32[30]))
        assert Counter(RUNTIME.findall(main))["read"] == 1
        (read,) = re.findall(r"@stablexla_gpu_read\(.*?, .*?, (%\w+)\)", main)
        assert f"{read} = arith.constant 4 : i64" in main

    def test_a_branch_reads_its_index(self) -> None:
        def make(b: sx.XlaBuilder, i: sx.XlaOp, x: sx.XlaOp) -> Any:
            branches = [lambda v: sx.exp(v), lambda v: v * 2.0, lambda v: sx.tanh(v)]
            return sx.conditional(i, branches, [x, x, x])

        assert calls(compiled(make, sx.s32[()], sx.f32[100]))["read"] == 1


class TestHostFunctions:
    @pytest.fixture
    def _half(self) -> Iterator[None]:
        sx.register_custom_call("test_host_main_half", lambda x: x / 2)
        yield
        sx.unregister_custom_call("test_host_main_half")

    @pytest.mark.usefixtures("_half")
    def test_arrays_come_and_go(self) -> None:
        with pytest.warns(UserWarning, match="on the host, not on the GPU: test_host_main_half"):
            executable = compiled(
                lambda b, x: sx.exp(sx.custom_call("test_host_main_half", (sx.exp(x),), sx.f32[8])), sx.f32[8]
            )
        main = main_of(executable)
        order = re.findall(r"call @(?:stablexla_gpu_)?(\w+)\(", main)
        assert order == ["launch", "to_host", "to_host", "host_0_impl", "from_host", "launch"]
        given, made = re.findall(r"@stablexla_gpu_to_host\(.*?, .*?, (%\w+)\)", main)
        assert f"{given} = arith.constant 1 : i64" in main
        assert f"{made} = arith.constant 0 : i64" in main

    def test_a_key_stays_where_it_is_drawn(self) -> None:
        with pytest.warns(UserWarning, match="on the host, not on the GPU: random_key"):
            executable = compiled(
                lambda b, x: x + sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[64]), sx.f32[64]
            )
        assert calls(executable) == {"to_host": 1, "from_host": 1, "launch": 1}


class TestRefused:
    def test_parts_of_arrays_are_not_copied(self) -> None:
        with upstream_context():
            whole, part, one = (
                ir.MemRefType(ir.Type.parse(text))
                for text in (
                    "memref<4x6xf32>",
                    "memref<4x3xf32, strided<[6, 1]>>",
                    "memref<1x3xf32, strided<[6, 1], offset: 2>>",
                )
            )
            assert is_dense(whole)
            assert not is_dense(part)
            assert is_dense(one)

    def test_a_module_without_a_table(self) -> None:
        with upstream_context(), ir.Location.unknown(), pytest.raises(sx.CompileError, match="no table of kernels"):
            LaunchTable.take(ir.Module.create())
