"""A pass, an emitter for the CPU and a target are one new file each, which is found where it lies.

Each is added to a copy of the sources (tests/tree.py), with no other edit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tree import Tree

PASS = """
import mlir.ir as ir

from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-count-functions", "writes the number of functions onto the module")
def count_functions(module: ir.Module) -> None:
    with module.context:
        number = len(module.body.operations)
        module.operation.attributes["made.functions"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
"""
EMITTER = '''
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import body_cost
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.loop_nest import analyze_nest
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.scope import LoopScope, lanes_for
from stablexla.targets.codegen.vector_loops import LoopPart, estimate_ns, grain_of, vector_loop
from stablexla.targets.cpu.emitters import emitter

BLOCK = 4096  # elements of a work item: whole vectors of every type


@emitter("loop", priority=100)  # kinds of kernels; asked before the emitters of lower priorities
def emit_one_loop(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit element-wise kernels of one loop, in blocks."""
    nest = analyze_nest(kernel)  # what the kernel computes: loads, bodies and stores, each with its strides
    if nest is None or len(nest.extents) != 1 or nest.folds or any(s.domain != {0} for s in nest.stores):
        return None  # the next emitter is asked: nothing has been declared yet
    (extent,), lanes = nest.extents, lanes_for(nest, target)
    items = -(-extent // BLOCK)  # what threads share, by sizes alone: results do not depend on their number
    with kernel.phase(target) as arguments:
        top = LoopScope(arguments)  # the level for loop nests: it loads, evaluates bodies on vectors, and stores
        top.prepare([place.ref for place in nest.stores], frozenset((0,)), lanes)  # loop-invariant code motion

        def step(at: Value, count: int | None, _: list[Value]) -> list[Value]:
            here = top.inside({0: at}, lane=0, lanes=lanes, count=count)  # one vector; the first `count` lanes of it
            for place in nest.stores:
                here.store(place, here.value(place.ref))
            return []  # no accumulators

        with arguments.items() as item:  # the level below, for all else: loops, addresses and vectors by `cg`
            start = item * BLOCK
            vector_loop(extent, lanes, step, [[]], LoopPart(start, start + BLOCK, item.eq(items - 1)))
    # The cost of an item, in nanoseconds, gives the grain: the fewest items that are worth another thread.
    cost = sum(body_cost(node.block) for node in nest.maps)
    moved = sum(cg.bits_of(place.element) // 8 for place in (*nest.loads, *nest.stores))
    elements = min(extent, BLOCK)
    return Emitted(items, grain_of(estimate_ns(cost, elements, moved * elements, target), items))
'''
TARGET = """
import mlir.ir as ir

from stablexla.targets.codegen.emit import emit_all, kernels_of
from stablexla.targets.codegen.general import emit_general
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.llvm.engine import load
from stablexla.targets.llvm.to_llvm import LLVM, TO_LLVM
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.pipeline.steps import BUFFERS, kernels_step, register_passes, stablehlo_step, tensor_step
from stablexla.targets.registry import Target


@module_pass("stablexla-emit-toy", "writes each kernel by the general path")
def emit_toy(module: ir.Module) -> None:
    emit_all([Kernel(view) for view in kernels_of(module)], lambda kernel: None, emit_general)


def pipeline(options: CompileOptions) -> Pipeline:
    register_passes("toy")
    buffers = Step("buffers", "stablexla-emit-toy,stablexla-assign-buffers", BUFFERS)
    last = Step("llvm", ",".join(TO_LLVM), LLVM)
    return Pipeline("toy", [stablehlo_step(), tensor_step(), kernels_step(), buffers, last])


def target(text: str) -> Target:
    return Target(text, pipeline, load)
"""
PROGRAM = """
import numpy as np
import stablexla as sx

b = sx.XlaBuilder("program")
x = b.parameter(0, sx.f32[7])
total = sx.reduce(x, b.constant(0.0), sx.add, (0,))
program = b.build(sx.tuple((sx.tanh(x) * 2 + 1, total)))
try:
    executable = sx.compile(program, target={target!r})
    print(executable.target, "stablexla.emit" in str(executable.pipeline))
    print(*(np.round(result, 3) for result in executable(np.arange(7, dtype=np.float32))))
except sx.CompileError as error:
    print(*str(error).splitlines(), sep="\\n")
"""
PIPELINE = "--pass-pipeline=builtin.module(stablexla-count-functions)"
NUMBERS = "[1.    2.523 2.928 2.99  2.999 3.    3.   ] 21.0"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture
def tree(sources: Tree) -> Iterator[Tree]:
    """The copy; files that a test adds are taken away."""
    before = set(sources.root.glob("targets/**/*.py"))
    yield sources
    for file in set(sources.root.glob("targets/**/*.py")) - before:
        file.unlink()


def test_a_pass(tree: Tree) -> None:
    tree.write(
        "program.mlir", "func.func @f(%x: memref<4xf32>) { return }\nfunc.func @g(%x: memref<4xf32>) { return }\n"
    )
    command = ("-m", "stablexla.tools.opt", "program.mlir", "--context=upstream", PIPELINE)
    assert "stablexla-count-functions" in tree.run(*command).stderr
    tree.write("targets/grouping/count_functions.py", PASS)
    done = tree.run(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert "module attributes {made.functions = 2 : i64}" in done.stdout
    assert "stablexla-count-functions" in tree.run("-m", "stablexla.tools.opt", "--list-passes").stdout


def test_an_emitter_for_the_cpu(tree: Tree) -> None:
    assert tree.printed(PROGRAM.format(target="cpu"))[-1] == NUMBERS
    tells = EMITTER.replace("    return Emitted(", "    print('taken', items)\n    return Emitted(")
    tree.write("targets/cpu/elementwise/one_loop.py", tells)
    assert tree.printed(PROGRAM.format(target="cpu")) == ["taken 1", "cpu False", NUMBERS]
    tree.write("targets/cpu/elementwise/one_loop.py", tells.replace("BLOCK = 4096", "BLOCK = 4"))
    assert tree.printed(PROGRAM.format(target="cpu")) == ["taken 2", "cpu False", NUMBERS]


def test_a_target(tree: Tree) -> None:
    program = PROGRAM.format(target="toy")
    assert tree.printed(program) == [
        "there is no target 'toy'",
        '  try: target="cpu" or target="gpu" or target="upstream"',
    ]
    tree.write("targets/toy/target.py", TARGET)
    assert tree.printed(program) == ["toy False", NUMBERS]
    assert tree.printed(PROGRAM.format(target="cpu"))[-1] == NUMBERS
