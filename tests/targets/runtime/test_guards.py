"""Runs under guard: kernels that go outside of their arrays are named, and right ones give what they always give.

The wrong kernels are right ones with an access of one byte put in front. Oracle: the same programs without a guard.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import mlir.ir as ir
import numpy as np
import pytest
from mlir.dialects import arith, memref

import stablexla as sx
from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.operations import operations_named
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import get_num_threads, pool_stats, set_num_threads
from tests.fuzz.generate import draw
from tests.fuzz.writer import FAMILIES

# A product, which is a temporary, and a loop over it.
PROGRAM = """
func.func @main(%x: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %p = stablehlo.dot %x, %x : (tensor<3x3xf32>, tensor<3x3xf32>) -> tensor<3x3xf32>
  %r = stablehlo.reverse %p, dims = [0] : tensor<3x3xf32>
  return %r : tensor<3x3xf32>
}
"""
X = np.arange(9, dtype=np.float32).reshape(3, 3)
EXPECTED = (X @ X)[::-1]
# One kernel, with enough work for two threads.
WIDE = """
func.func @main(%x: tensor<1000000xf32>) -> tensor<1000000xf32> {
  %r = stablehlo.tanh %x : tensor<1000000xf32>
  return %r : tensor<1000000xf32>
}
"""
End = Literal["ends", "starts"]
NAMES = {
    "result": "result 0, float32[3,3], which has 36",
    "temporary": "temporary 0, tensor<3x3xf32> of contraction_0, which has 36",
    "input": "argument 0, float32[3,3], which has 36",
    "read_only": "argument 0, float32[3,3], which is only read",
}
INPUT, RESULT = 0, 1
"""Arguments of the kernels above."""


def touch(module: Any, *, kernel: str = "", argument: int = 0, byte: int = 0, write: bool = False) -> None:
    """Makes a kernel access one byte, counted from the start of an argument, before it does anything else."""
    function = next(v.operation for v in module.body.operations if symbol_of(v).startswith(f"{kernel}_impl"))
    i8, i64 = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(64)
    block = function.regions[0].blocks[0]
    with ir.Location.unknown(module.context), ir.InsertionPoint.at_block_begin(block):
        start = arith.index_cast(i64, memref.extract_aligned_pointer_as_index(block.arguments[argument]))
        place = arith.addi(start, arith.constant(i64, byte))
        pointer = ir.Operation.create("llvm.inttoptr", results=[ir.Type.parse("!llvm.ptr")], operands=[place]).result
        attributes = {"volatile_": ir.UnitAttr.get()}
        if write:
            operands = [arith.constant(i8, 0), pointer]
            ir.Operation.create("llvm.store", operands=operands, attributes=attributes)
        else:
            ir.Operation.create("llvm.load", results=[i8], operands=[pointer], attributes=attributes)


def compiled(
    end: End | None, change: Callable[..., None] | None = None, text: str = PROGRAM, **counts: int
) -> sx.Executable:
    """A program under guard, with a change of its stage `buffers`."""
    with knobs.scoped(guard=end):
        pipeline = sx.pipeline() if change is None else sx.pipeline().inserting(change, after="buffers")
        return sx.compile(text, options=sx.CompileOptions(pipeline=pipeline), **counts)


@pytest.fixture(params=["ends", "starts"])
def end(request: pytest.FixtureRequest) -> End:
    found: End = request.param
    return found


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = get_num_threads()
    set_num_threads(2)
    yield
    set_num_threads(before)


# ---- wrong kernels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "kernel", "argument", "byte", "write", "told"),
    [
        # at a page that nobody may touch
        ("ends", "loop_0", RESULT, 36, True, "wrote byte 36 of {result}"),
        ("ends", "contraction_0", INPUT, 39, False, "read byte 39 of {input}"),
        ("starts", "contraction_0", INPUT, -1, False, "read byte -1 of {input}"),
        ("starts", "loop_0", RESULT, -4, True, "wrote byte -4 of {result}"),
        ("ends", "loop_0", INPUT, 36, False, "read byte 36 of {temporary}"),
        ("starts", "loop_0", INPUT, -1, False, "read byte -1 of {temporary}"),
        # in canaries
        ("starts", "loop_0", RESULT, 37, True, "wrote byte 37 of {result}"),
        ("ends", "loop_0", RESULT, -2, True, "wrote byte -2 of {result}"),
        ("starts", "contraction_0", RESULT, 36, True, "wrote byte 36 of {temporary}"),
        ("ends", "contraction_0", RESULT, -64, True, "wrote byte -64 of {temporary}"),
        # what is only read
        ("ends", "contraction_0", INPUT, 7, True, "wrote byte 7 of {read_only}"),
        # far from all arrays
        ("ends", "loop_0", RESULT, -(1 << 46), True, "wrote address 0x"),
    ],
)
def test_the_kernel_and_the_array_are_named(
    end: End, kernel: str, argument: int, byte: int, write: bool, told: str
) -> None:
    change = partial(touch, kernel=kernel, argument=argument, byte=byte, write=write)
    wrong = compiled(end, change)
    for _ in range(2):
        with pytest.raises(ExecutionError) as error:
            wrong(X)
        first, second, *_ = str(error.value).splitlines()
        line = 3 if kernel == "contraction_0" else 4
        assert first.startswith(f"main: {kernel} at <text>:{line}"), first
        assert first.endswith("went outside of its arrays")
        assert second.strip().startswith(told.format(**NAMES)), second
    np.testing.assert_array_equal(compiled(end)(X), EXPECTED)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("byte", [4_000_000, 4_000_064])
def test_threads_of_the_pool_are_left(byte: int) -> None:
    """Each chunk does it, so that two threads do at the same time."""
    wrong = compiled("ends", partial(touch, kernel="loop_0", argument=RESULT, byte=byte, write=True), WIDE)
    right, x = compiled("ends", text=WIDE), np.linspace(-1, 1, 1_000_000, dtype=np.float32)
    for _ in range(5):
        with pytest.raises(ExecutionError, match=f"loop_0 at .*\n  wrote byte {byte} of result 0"):
            wrong(x)
        np.testing.assert_allclose(right(x), np.tanh(x), rtol=1e-6)


def test_one_run_of_several(two_threads: None) -> None:
    """Runs of other threads go on."""
    wrong = compiled("ends", partial(touch, kernel="loop_0", argument=RESULT, byte=36, write=True))
    right, results = compiled("ends"), []
    thread = threading.Thread(target=lambda: results.extend(right(X) for _ in range(50)))
    thread.start()
    for _ in range(50):
        with pytest.raises(ExecutionError, match="wrote byte 36 of result 0"):
            wrong(X)
    thread.join()
    assert len(results) == 50
    assert all(np.array_equal(result, EXPECTED) for result in results)


def test_several_devices() -> None:
    wrong = partial(touch, kernel="contraction_0", argument=INPUT, byte=-1, write=False)
    with pytest.raises(ExecutionError, match=r"contraction_0 at .*\n  read byte -1 of argument 0"):
        compiled("starts", wrong, num_replicas=2).execute_replicated([[X], [X]])
    for (result,) in compiled("starts", num_replicas=2).execute_replicated([[X], [X]]):
        np.testing.assert_array_equal(result, EXPECTED)


def test_what_was_not_written_is_no_number() -> None:
    """A kernel that leaves its result as it was, and one that reads what it did not write."""

    def forget(module: Any) -> None:
        for function in [v.operation for v in module.body.operations if "sum_rows" in symbol_of(v)]:
            for name in ("memref.store", "vector.store", "vector.scatter", "vector.maskedstore"):
                for op in operations_named(function, name):
                    op.erase()

    assert np.isnan(compiled("ends", forget)(X)).all()


def test_memory_is_given_back() -> None:
    wrong = compiled("ends", partial(touch, kernel="loop_0", argument=RESULT, byte=36, write=True))

    def mappings() -> int:
        gc.collect()
        return len(Path("/proc/self/maps").read_text().splitlines())

    def fail() -> None:
        with pytest.raises(ExecutionError):
            wrong(X)

    fail()
    before, blocks = mappings(), pool_stats()["in_use_blocks"]
    for _ in range(20):
        fail()
    assert mappings() <= before + 2
    assert pool_stats()["in_use_blocks"] == blocks


# ---- right ones ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_programs_of_all_families(first: int, end: End) -> None:
    """They give the same bits under guard, and touch nothing else."""
    for seed in range(first, first + 4):
        drawn = draw(seed, FAMILIES)
        text = drawn.program.text
        plain, guarded = sx.compile(text), compiled(end, text=text)
        for a, b in zip(plain.execute(drawn.arguments), guarded.execute(drawn.arguments), strict=True):
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), text


def test_saved_programs(tmp_path: Path, end: End) -> None:
    """One that was compiled without a guard has it around the arrays of the caller, and its arena."""
    change = partial(touch, kernel="loop_0", argument=RESULT, byte=36 if end == "ends" else -1, write=True)
    compiled(end).save(tmp_path / "guarded")
    compiled(None).save(tmp_path / "plain")
    compiled(None, change).save(tmp_path / "wrong")
    with knobs.scoped(guard=end):
        for name in ("guarded", "plain"):
            np.testing.assert_array_equal(sx.load_executable(tmp_path / name)(X), EXPECTED)
        with pytest.raises(ExecutionError, match=r"main: main went outside of its arrays\n  wrote byte -?\d+ of res"):
            sx.load_executable(tmp_path / "wrong")(X)
    np.testing.assert_array_equal(sx.load_executable(tmp_path / "guarded")(X), EXPECTED)


def test_donated_arguments(end: End) -> None:
    text = PROGRAM.replace("%x: tensor<3x3xf32>", "%x: tensor<3x3xf32> {tf.aliasing_output = 0 : i32}")
    with knobs.scoped(guard=end):
        given = X.copy()
        (result,) = sx.compile(text).execute([given], donate=True)
    np.testing.assert_array_equal(result, EXPECTED)


def test_callbacks_may_keep_views(end: End) -> None:
    kept: list[Any] = []

    def keep(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        return x + 1

    b = sx.XlaBuilder("keeps")
    x = b.parameter(0, sx.f32[3, 3])
    sx.register_custom_call("keep", keep)
    with knobs.scoped(guard=end):
        executable = sx.compile(b.build(sx.custom_call("keep", sx.neg(x), sx.f32[3, 3])))
    sx.unregister_custom_call("keep")
    np.testing.assert_array_equal(executable(X), 1 - X)
    del executable
    gc.collect()
    np.testing.assert_array_equal(kept[0], -X)


def test_without_it_programs_are_what_they_were() -> None:
    assert "stablexla_guard" not in str(sx.compile(PROGRAM).ir("llvm"))
    assert "stablexla_guard" in str(compiled("ends").ir("llvm"))
    assert "guard=ends" in str(compiled("ends").pipeline)


def test_the_environment_turns_it_on(tmp_path: Path) -> None:
    (tmp_path / "program.mlir").write_text(PROGRAM)
    code = "import sys, stablexla as sx; print(sx.compile(open(sys.argv[1]).read()).pipeline)"
    for value, word in (("1", "guard=ends"), ("starts", "guard=starts"), ("0", "num-threads")):
        environment = {**os.environ, "STABLEXLA_GUARD": value}
        command = [sys.executable, "-c", code, str(tmp_path / "program.mlir")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert word in done.stdout, done.stderr
        assert ("guard" in done.stdout) == (value != "0")


def test_signals_of_others_are_theirs() -> None:
    """Who watched for them before is asked, and arrays stay under guard."""
    code = """
import os, signal
from functools import partial
seen = []
signal.signal(signal.SIGSEGV, lambda *_: seen.append(1))
from tests.targets.runtime.test_guards import RESULT, X, ExecutionError, compiled, touch
wrong = compiled("ends", partial(touch, kernel="loop_0", argument=RESULT, byte=36, write=True))
for _ in range(3):
    try:
        wrong(X)
    except ExecutionError:
        os.kill(os.getpid(), signal.SIGSEGV)
print(len(seen))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)
