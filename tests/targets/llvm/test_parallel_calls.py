"""Parallel calls: results do not depend, to the last bit, on the number of threads nor on how work is cut up.

The oracle is the program compiled for one thread. A test pass makes the pieces of work larger by a factor, which the
contract of kernels allows: pieces are any multiples of the grain.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.lowering.support.operations import walk
from stablexla.targets.buffers.assign import PARALLEL_GRAIN
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.pipeline.passes import PASSES, module_pass
from tests.fuzz.generate import FOUNDATION, Drawn, draw
from tests.fuzz.workers import Failure, Workers

COARSER = "stablexla-test-coarser"


@pytest.fixture(autouse=True)
def coarser_pass() -> Iterator[None]:
    """A pass that multiplies the grain of every parallel call."""

    @module_pass(COARSER, "multiplies the grain of parallel calls")
    def coarser(module: ir.Module, *, factor: int = 1) -> None:
        with module.context:
            for op in walk(module.operation):
                if PARALLEL_GRAIN in op.attributes:
                    grain = ir.IntegerAttr(op.attributes[PARALLEL_GRAIN])
                    op.attributes[PARALLEL_GRAIN] = ir.IntegerAttr.get(grain.type, grain.value * factor)

    yield
    del PASSES[COARSER]


def cut(threads: int, factor: int = 1) -> sx.CompileOptions:
    """Options for pieces of `factor` grains."""
    plain = cpu_pipeline(sx.CompileOptions(num_threads=threads))
    passes = f"{plain['buffers'].passes},{COARSER}{{factor={factor}}}"
    return sx.CompileOptions(pipeline=plain.with_step("buffers", passes), num_threads=threads)


def softmax(b: sx.XlaBuilder) -> sx.XlaOp:
    x = b.parameter(0, sx.f32[300, 1500])
    low, zero = b.constant(np.float32(-np.inf)), b.constant(np.float32(0))
    shifted = sx.sub(x, sx.broadcast_in_dim(sx.reduce(x, low, sx.max, (1,)), (300, 1500), (0,)))
    e = sx.exp(shifted)
    return sx.div(e, sx.broadcast_in_dim(sx.reduce(e, zero, sx.add, (1,)), (300, 1500), (0,)))


def sums(b: sx.XlaBuilder) -> sx.XlaOp:
    x, zero = b.parameter(0, sx.f32[300, 1500]), b.constant(np.float32(0))
    return sx.tuple([sx.reduce(x, zero, sx.add, axes) for axes in ((0,), (1,), (0, 1))])


def dense(b: sx.XlaBuilder) -> sx.XlaOp:
    x = b.parameter(0, sx.f32[300, 1500])
    square = sx.dot_general(x, x, sx.DotDimensionNumbers((1,), (1,), (), ()))
    return sx.tanh(square)


def chain(b: sx.XlaBuilder) -> sx.XlaOp:
    x = b.parameter(0, sx.f32[300, 1500])
    return sx.tuple([sx.transpose(sx.sin(x), (1, 0)), sx.mul(sx.exp(x), x)])


PROGRAMS: list[Callable[[sx.XlaBuilder], sx.XlaOp]] = [softmax, sums, dense, chain]


def built(make: Callable[[sx.XlaBuilder], sx.XlaOp]) -> sx.XlaComputation:
    b = sx.XlaBuilder(make.__name__)
    return b.build(make(b))


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_threads_and_pieces_make_no_difference(make: Callable[[sx.XlaBuilder], sx.XlaOp]) -> None:
    program = built(make)
    x = np.random.default_rng(0).standard_normal((300, 1500)).astype(np.float32)
    alone = sx.compile(program, options=cut(1)).execute([x])
    for factor in (1, 2, 3, 7):
        together = sx.compile(program, options=cut(2, factor))
        assert f"{PARALLEL_GRAIN} = " in together.ir("buffers")
        for actual, expected in zip(together.execute([x]), alone, strict=True):
            assert actual.tobytes() == expected.tobytes()


def test_many_programs_run_at_once() -> None:
    """Eight threads run the same executables, which all call the one pool of threads."""
    x = np.random.default_rng(1).standard_normal((300, 1500)).astype(np.float32)
    executables = [sx.compile(built(make), options=sx.CompileOptions(num_threads=2)) for make in PROGRAMS]
    expected = [[r.tobytes() for r in e.execute([x])] for e in executables]
    start = threading.Barrier(8)

    def runs(first: int) -> bool:
        start.wait()
        return all(
            [r.tobytes() for r in executables[k % 4].execute([x])] == expected[k % 4] for k in range(first, first + 12)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(runs, range(8)))


def test_compiling_at_once() -> None:
    """Programs are compiled by four threads and each is run by another; the oracle is the reference interpreter."""
    drawn = [real_results(draw(seed, FOUNDATION, 5)) for seed in range(3000, 3032, 2)]
    drawn = [each for each in drawn if each.program.returns]
    with ThreadPoolExecutor(4) as pool:
        executables = list(pool.map(lambda d: sx.compile(d.program.text), drawn))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda e, d: e.execute(d.arguments), executables, drawn))
    compared = 0
    with Workers() as workers:
        for one, found in zip(drawn, results, strict=True):
            expected = workers.run("interpreter", one.program.text, one.arguments)
            if isinstance(expected, Failure):  # it aborts on products of nothing
                continue
            for actual, right in zip(found, expected, strict=True):
                np.testing.assert_array_equal(actual.astype(np.float64), right.astype(np.float64))
                compared += 1
    assert compared > 20


def real_results(drawn: Drawn) -> Drawn:
    """Without the complex results, which the interpreter can't return."""
    program = drawn.program
    real = [name for name in program.returns if not program.values[name].is_complex]
    return replace(drawn, program=program.returning(real))
