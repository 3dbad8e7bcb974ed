"""Constants that hold arrays: no copies, what is saved, shown and written of them. Oracle: the arrays as arguments."""

from __future__ import annotations

import functools
import gc
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

import stablexla as sx
from stablexla.dialects.contexts import contexts_of_their_own
from stablexla.dialects.held_arrays import LEAST_BYTES, can_be_held, held_array, holds, leave_pages, with_elements
from stablexla.interop.encodings.formats import to_bytecode
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.stablehlo.inlining import operations_of
from tests.aot import test_gpu_program as gpu
from tests.aot import test_library as library

Array = npt.NDArray[Any]

N = 160
"""Columns of a square weight that is held."""
RNG = np.random.default_rng(5)
W = RNG.standard_normal((N, N), np.float32) / 8
TABLE = RNG.standard_normal((900, N), np.float32)
X, ROWS = np.arange(40, dtype=np.int32) * 7, 40


def network() -> sx.XlaComputation:
    """A table that is read in place, and a weight that is packed, each twice."""
    b = sx.XlaBuilder("network")
    table, w, at = (
        b.parameter(0, sx.f32[TABLE.shape], "table"),
        b.parameter(1, sx.f32[N, N], "w"),
        b.parameter(2, sx.s32[ROWS], "at"),
    )
    rows = sx.torch_index_select(table, at, 0)
    return b.build(sx.tanh(rows @ w) @ w + sx.torch_index_select(table, at + 1, 0))


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.fixture(autouse=True)
def in_new_contexts() -> Iterator[None]:
    with contexts_of_their_own():
        yield


def frozen(table: Array = TABLE, w: Array = W) -> Any:
    return sx.freeze(network(), {"table": table, "w": w})


@functools.cache
def wanted() -> Array:
    return np.asarray(sx.compile(network())(TABLE, W, X))


def check(executable: Any) -> None:
    np.testing.assert_allclose(executable(X), wanted(), rtol=1e-5, atol=1e-5)


def test_arrays_are_not_copied() -> None:
    table = read_only(TABLE)
    run = sx.compile(frozen(table, read_only(W)))
    check(run)
    kept = run._function.constants
    assert table.ctypes.data in [each.ctypes.data for each in kept], "the table is read where it lies"
    assert sum(each.nbytes for each in kept) < TABLE.nbytes + 1.1 * W.nbytes, "the weight is there once, packed"


def test_an_array_that_its_owner_may_write_is_copied() -> None:
    table, w = TABLE.copy(), W.copy()
    module = frozen(table, w)
    table[...], w[...] = 0, 0
    check(sx.compile(module))


def test_a_read_only_constant_of_the_builder_is_as_it_was_when_it_was_compiled() -> None:
    owned = TABLE.copy()
    view = owned.view()
    view.flags.writeable = False
    b = sx.XlaBuilder("rows")
    program = b.build(sx.torch_index_select(b.constant(view), b.parameter(0, sx.s32[ROWS]), 0))
    assert holds(program.module)
    run = sx.compile(program)
    owned[...] = 0
    np.testing.assert_array_equal(run(X), TABLE[X])


@pytest.mark.parametrize(
    "name", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "float8_e4m3fn"]
)
@pytest.mark.parametrize("below", [1, 0, -1])
def test_element_types_around_the_least_size(name: str, below: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    count = LEAST_BYTES // dtype.itemsize - below
    values = read_only((RNG.standard_normal(count) * 20).astype(dtype))
    assert can_be_held(values) == (below <= 0)
    element = {"float8_e4m3fn": "f8e4m3fn", "bfloat16": "bf16"}.get(name)
    element = element or f"{'f' if dtype.kind == 'f' else 's' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}"
    b = sx.XlaBuilder("reversed")
    program = b.build(sx.rev(b.parameter(0, sx.Shape(element, (count,)), "x"), [0]))
    module = sx.freeze(program, {"x": values})
    assert holds(module) == (below <= 0)
    assert sx.compile(module)().tobytes() == values[::-1].tobytes()


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, ml_dtypes.int4])
def test_other_element_types_are_elements_of_the_program(dtype: Any) -> None:
    values = read_only((np.arange(2 * LEAST_BYTES) % 7 > 2).astype(dtype))
    assert not can_be_held(values)
    element = {"bool": "pred", "complex64": "c64", "int4": "s4"}[np.dtype(dtype).name]
    b = sx.XlaBuilder("reversed")
    program = b.build(sx.rev(b.parameter(0, sx.Shape(element, values.shape), "x"), [0]))
    np.testing.assert_array_equal(sx.compile(sx.freeze(program, {"x": values}))(), values[::-1])


def test_equal_numbers_are_one_number() -> None:
    run = sx.compile(frozen(read_only(np.ones_like(TABLE)), read_only(np.zeros_like(W))))
    np.testing.assert_array_equal(run(X), np.ones((ROWS, N), np.float32))
    assert run.constant_bytes < W.nbytes


def test_one_array_for_two_parameters_is_there_once() -> None:
    b = sx.XlaBuilder("tied")
    x, v, w = (
        b.parameter(i, sx.f32[s], n) for i, (s, n) in enumerate([((ROWS, N), "x"), ((N, N), "v"), ((N, N), "w")])
    )
    program, given = b.build(sx.tanh(x @ v) @ w), RNG.standard_normal((ROWS, N), np.float32)
    one = read_only(W)
    run = sx.compile(sx.freeze(program, {1: one, 2: one}))
    np.testing.assert_allclose(run(given), sx.compile(program)(given, W, W), rtol=1e-5, atol=1e-5)
    assert run.constant_bytes < 2.2 * W.nbytes


def test_a_saved_program_has_each_weight_once(tmp_path: Path) -> None:
    made, again = tmp_path / "network.sxe", tmp_path / "again.sxe"
    run = sx.compile(frozen())
    run.save(made)
    assert made.stat().st_size < 1.1 * (TABLE.nbytes + W.nbytes) + 64_000
    loaded = sx.load_executable(made)
    check(loaded)
    loaded.save(again)
    check(sx.load_executable(again))


def test_a_loaded_program_shows_its_stages_and_lacks_its_arrays(tmp_path: Path) -> None:
    run = sx.compile(frozen())
    run.save(tmp_path / "network.sxe")
    loaded = sx.load_executable(tmp_path / "network.sxe")
    for stage in ("source", "tensor", "kernels", "buffers"):
        ours, theirs = (e.ir(stage, large_elements_limit=8).split("\n", 1) for e in (run, loaded))
        assert ours[1] == theirs[1], stage
        assert "{-#" not in ours[1]
    assert "stablexla.elided" in loaded.ir("source", large_elements_limit=8)
    assert [kernel.name for kernel in loaded.kernels] == [kernel.name for kernel in run.kernels]
    with pytest.raises(sx.CompileError, match="frozen arrays as its kernels read them"):
        loaded.compare([X])
    check(loaded)


def test_the_source_of_a_loaded_program_is_no_program(tmp_path: Path) -> None:
    """It has zeros for the arrays, of which nothing may be computed."""
    sx.compile(frozen()).save(tmp_path / "network.sxe")
    loaded = sx.load_executable(tmp_path / "network.sxe")
    for program in (loaded.ir("source"), bytes(loaded.source_bytes or b"")):
        with pytest.raises(sx.StablexlaError, match="left out"):
            sx.compile(program)
    assert "dense_resource<__elided__>" in loaded.ir("tensor")
    with pytest.raises(sx.StablexlaError):
        sx.compile("// stage tensor: cpu\n" + loaded.ir("tensor"))


def test_freezing_keeps_no_context() -> None:
    """Arrays are freed with the modules that hold them."""
    large = read_only(np.zeros((1500, 1500), np.float32))
    b = sx.XlaBuilder("large")
    program = b.build(b.parameter(0, sx.f32[large.shape], "w") * 2.0)
    sx.freeze(program, {"w": large})
    gc.collect()
    before = sys.getrefcount(large)
    for _ in range(3):
        sx.freeze(program, {"w": large})
    gc.collect()
    assert sys.getrefcount(large) == before


def test_elements_of_a_text_are_not_kept_by_the_executable() -> None:
    """Constants that are not packed are copied: a view of their elements would keep the context of the text."""
    b = sx.XlaBuilder("rows")
    program = b.build(sx.torch_index_select(b.constant(TABLE), b.parameter(0, sx.s32[ROWS]), 0))
    run = sx.compile(to_bytecode(program.module))
    (made,) = run._function.constants
    constants = operations_of(run._source, "stablehlo.constant")
    assert made.ctypes.data not in [np.asarray(op.attributes["value"]).ctypes.data for op in constants]
    np.testing.assert_array_equal(run(X), TABLE[X])


def test_two_executables_of_a_frozen_program_are_compared() -> None:
    module = frozen()
    one, other = sx.compile(module), sx.compile(module)
    assert one.compare([X], other).judged > 0


def test_text_and_bytecode_have_the_elements() -> None:
    module = frozen()
    assert holds(module)
    whole = with_elements(module)
    assert not holds(whole)
    assert holds(module), "it stays as it is"
    for program in (to_bytecode(module), str(whole), str(module)):
        check(sx.compile(program))


def test_text_without_the_elements_names_no_array_of_this_process() -> None:
    text = sx.compile(frozen()).ir("tensor", large_elements_limit=8)
    assert "dense_resource<__elided__>" in text
    assert "stablexla_kept" not in text


def test_the_text_of_every_stage_goes_on(tmp_path: Path) -> None:
    with knobs.scoped(dump=tmp_path, kernel_cache="off"):
        run = sx.compile(frozen())
    check(run)
    files = sorted(tmp_path.glob("*/*.mlir"))
    assert len(files) > 5
    for file in files:
        check(sx.compile(file))


def test_a_frozen_module_is_compiled_by_another_thread() -> None:
    module, made = frozen(), []
    thread = threading.Thread(target=lambda: made.append(sx.compile(module)))
    thread.start()
    thread.join()
    check(made[0])


def test_a_process_of_its_own() -> None:
    check(sx.compile(frozen(), options=sx.CompileOptions(isolated=True)))


def test_a_program_that_is_found_in_the_cache_has_its_source(tmp_path: Path) -> None:
    data, options = to_bytecode(frozen()), sx.CompileOptions(cache=tmp_path)
    for _ in range(2):
        assert sx.compile(data, options=options).compare([X], "plain")


def test_the_cache_knows_a_frozen_program(tmp_path: Path) -> None:
    options = sx.CompileOptions(cache=tmp_path)
    check(sx.compile(frozen(), options=options))
    (entry,) = tmp_path.glob("*.sxe")
    before = entry.stat().st_mtime_ns
    check(found := sx.compile(frozen(), options=options))
    assert [entry] == list(tmp_path.glob("*.sxe"))
    assert entry.stat().st_mtime_ns >= before
    other = sx.compile(frozen(TABLE * 2), options=options)
    assert len(list(tmp_path.glob("*.sxe"))) == 2, "other elements are another program"
    assert not np.array_equal(other(X), wanted())
    assert found.compare([X], "plain"), "it has its source, with the arrays"


def test_upstream_s_way() -> None:
    check(sx.compile(frozen(), target="upstream"))


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, with which libraries are linked")
def test_a_library_for_c_and_one_for_gpus(tmp_path: Path) -> None:
    library.same_as_here(frozen(), [X], tmp_path)
    (made,) = gpu.launched(frozen(), [X], tmp_path)
    np.testing.assert_allclose(made, wanted(), rtol=1e-5, atol=1e-5)


def test_pages_of_a_mapped_file_are_left_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights.npy"
    np.save(path, TABLE)
    mapped = np.load(path, mmap_mode="r")
    assert np.array_equal(mapped, TABLE)
    leave_pages(mapped)
    assert np.array_equal(mapped, TABLE)
    written = np.load(path, mmap_mode="c")
    written[0] = 1
    leave_pages(written)
    assert (written[0] == 1).all(), "a copy on write is not left"


def test_what_holds_nothing() -> None:
    b = sx.XlaBuilder("small")
    program = b.build(b.parameter(0, sx.f32[2]) + b.constant([1.0, 2.0]))
    assert not holds(program.module)
    assert with_elements(program.module) is program.module
    assert held_array(None) is None


_MEMORY = """
import sys
import numpy as np
import stablexla as sx
from stablexla.tools.running.constants import read_constants

def resident():
    lines = dict(line.split(":") for line in open("/proc/self/status"))
    return int(lines["RssAnon"].split()[0]) >> 10

b = sx.XlaBuilder("layers")
x = y = b.parameter(0, sx.f32[8, 2048], "x")
for i in range(8):
    y = sx.tanh(y @ b.parameter(i + 1, sx.f32[2048, 2048], f"w{i}"))
program, path, made = b.build(y), *map(__import__("pathlib").Path, sys.argv[1:])
sx.compile(program)  # what is loaded for a first compilation
before = resident()
run = sx.compile(sx.freeze(program, read_constants(path)))
ours = resident() - before
run.save(made)
del run
before = resident()
loaded = sx.load_executable(made)
loaded(np.ones((8, 2048), np.float32))
print(ours, resident() - before)
"""


def test_memory_has_each_weight_once(tmp_path: Path) -> None:
    """128 MiB of weights in a mapped file: compiled they take that, of which a process that loads them shares all."""
    path = tmp_path / "weights.safetensors"
    shape = (2048, 2048)
    save_file({f"w{i}": RNG.standard_normal(shape, np.float32) / 64 for i in range(8)}, path)
    call = [sys.executable, "-c", _MEMORY, str(path), str(tmp_path / "layers.sxe")]
    ended = subprocess.run(call, capture_output=True, text=True, check=True)
    compiled, loaded = map(int, ended.stdout.split())
    assert compiled < 1.3 * 128, f"{compiled} MiB"
    assert loaded < 0.1 * 128, f"{loaded} MiB"
    assert (tmp_path / "layers.sxe").stat().st_size < 1.05 * (128 << 20)
