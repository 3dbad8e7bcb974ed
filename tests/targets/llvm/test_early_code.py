"""Kernels whose machine code is made while the next are emitted: results, files, errors, threads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.cpu import emit
from stablexla.targets.llvm import early_code
from stablexla.targets.llvm.code_threads import CodeThreads
from stablexla.targets.llvm.forwarded import Forwarded
from stablexla.targets.llvm.llvm_c import LlvmError
from stablexla.targets.pipeline.passes import PASSES
from tests.targets.llvm.test_split_module import many

Early = early_code.EarlyCode
X = np.random.default_rng(1).standard_normal((37, 41), np.float32)


def compiled(**options: Any) -> sx.Executable:
    b = sx.XlaBuilder("many")
    return sx.compile(b.build(many(b)), options=sx.CompileOptions(**options))


def files_of(executable: sx.Executable) -> list[bytes]:
    files: list[bytes] = executable._function.keep_alive.object_files()
    return files


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Two threads at least, and a part for each kernel; the symbols of every part."""
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 3)
    monkeypatch.setattr(early_code, "PART", 1)
    one = early_code.host_target()
    monkeypatch.setattr(early_code, "host_target", lambda: type("Two", (), {"num_threads": max(2, one.num_threads)}))
    parts: list[list[str]] = []
    move = Early._moved

    def moved(self: Early, chosen: Any) -> ir.Module:
        parts.append([symbol.name for symbol in chosen])
        return move(self, chosen)

    monkeypatch.setattr(Early, "_moved", moved)
    return parts


def test_equal_results(taken: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    early = compiled()
    assert len(taken) > 3
    assert len(files_of(early)) > len(taken)
    early.save(tmp_path / "early.sxe")
    monkeypatch.setattr(emit, "open_session", lambda: None)
    late = compiled()
    expected: Any = late(X)
    np.testing.assert_array_equal(early(X), expected)
    np.testing.assert_array_equal(sx.load_executable(tmp_path / "early.sxe")(X), expected)


def test_equal_files_of_two_compilations(taken: list[list[str]]) -> None:
    assert files_of(compiled()) == files_of(compiled())
    half = len(taken) // 2
    assert taken[:half] == taken[half:]


def test_a_small_program_is_compiled_at_once() -> None:
    b = sx.XlaBuilder("small")
    x = b.parameter(0, sx.f32[3, 4], name="x")
    assert len(files_of(sx.compile(b.build(sx.abs(x))))) == 1


def test_many_kernels_are_no_small_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM takes its time for the first parts of programs of fewer."""
    monkeypatch.setattr(early_code, "PART", 1)
    monkeypatch.setattr(early_code, "host_target", lambda: type("Two", (), {"num_threads": 2}))
    compile_part, small = Early._compiled, list[bool]()

    def noted(self: Early, part: ir.Module, *, is_of_small: bool = False) -> bytes:
        if early_code._PART in part.operation.attributes:
            small.append(is_of_small)
        return compile_part(self, part, is_of_small=is_of_small)

    monkeypatch.setattr(Early, "_compiled", noted)
    count = len(compiled().kernels)
    for least, expected in ((count, False), (count + 1, True)):
        small.clear()
        monkeypatch.setattr(early_code.LEAST_KERNELS, "usual", least)
        compiled()
        assert small
        assert any(small) == expected


@pytest.mark.parametrize("where", ["_compiled", "_moved"])
def test_what_fails_early_is_compiled_again(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """With a warning, which is an error in all other tests: else nobody would see more than a slow compilation."""
    tried = []

    def fail(self: Early, part: Any, **_: Any) -> bytes:
        tried.append(part)
        raise (LlvmError if where == "_compiled" else sx.CompileError)("not today")

    monkeypatch.setattr(Early, where, fail)
    with pytest.warns(UserWarning, match=r"compiled a second time, .* please report it: [\s\S]*not today"):
        assert compiled()(X).shape == (37, 37)
    assert tried


def test_an_error_after_parts_were_taken_is_the_same(taken: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: ir.Module) -> None:
        raise ValueError("no buffers today")

    name = "stablexla-pack-constants"
    monkeypatch.setitem(PASSES, name, replace(PASSES[name], function=refuse))
    messages = []
    for session in (emit.open_session, lambda: None):
        monkeypatch.setattr(emit, "open_session", session)
        with pytest.raises(sx.CompileError, match="no buffers today") as caught:
            compiled()
        messages.append([line for line in str(caught.value).splitlines() if "stablexla-opt" not in line])
    assert taken
    assert messages[0] == messages[1]


@pytest.mark.parametrize(("dtype", "is_forwarded"), [("f4", True), ("f2", False)])
def test_constants_are_packed_by_what_was_taken(
    taken: list[list[str]], monkeypatch: pytest.MonkeyPatch, dtype: str, is_forwarded: bool
) -> None:
    """Or by the library's function alone, which the phase forwards its call to."""
    weights, given = (
        np.random.default_rng(seed).standard_normal(shape).astype(dtype)
        for seed, shape in ((2, (600, 301)), (3, (64, 600)))
    )
    b = sx.XlaBuilder("constant")
    x = b.parameter(0, {"f4": sx.f32, "f2": sx.f16}[dtype][64, 600], name="x")
    computation = b.build(sx.sin(sx.dot(x, b.constant(weights), preferred_element_type="f32")))
    called: list[Forwarded] = []
    call = Forwarded.call
    monkeypatch.setattr(Forwarded, "call", lambda self, *rest: (called.append(self), call(self, *rest)))
    early = sx.compile(computation)
    packs = [name for part in taken for name in part if name.endswith("_impl_pack")]
    assert len(packs) == (0 if is_forwarded else 1)
    assert ["_impl_pack" in forwarded.function for forwarded in called] == [not is_forwarded]
    monkeypatch.setattr(emit, "open_session", lambda: None)
    late = sx.compile(computation)
    np.testing.assert_array_equal(early(given), late(given))
    assert "_impl_pack" not in late.ir("buffers", large_elements_limit=8)
    sums = given.astype(np.float64) @ weights.astype(np.float64)
    np.testing.assert_allclose(late(given), np.sin(sums), rtol=0, atol=1e-3)


def test_whoever_looks_sees_everything(taken: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STABLEXLA_DUMP", str(tmp_path))
    compiled()
    (file,) = tmp_path.rglob("*.llvm.mlir")
    kernels = [line for line in file.read_text().splitlines() if "llvm.func" in line and "_impl(" in line]
    assert kernels
    assert all(" {" in line for line in kernels)
    monkeypatch.delenv("STABLEXLA_DUMP")
    compiled(pipeline=sx.pipeline("cpu"))
    assert not taken


def test_many_threads_compile_at_once(taken: list[list[str]]) -> None:
    expected: Any = compiled()(X)
    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(compiled) for _ in range(8)]:
            np.testing.assert_array_equal(made.result()(X), expected)


def test_the_switch_interval_comes_back(taken: list[list[str]]) -> None:
    kept = sys.getswitchinterval()
    compiled()
    assert taken
    assert sys.getswitchinterval() == kept


def numbered(count: int) -> list[Callable[[], bytes]]:
    return [lambda n=n: bytes([n]) for n in range(count)]  # type: ignore[misc]


def test_results_come_in_order() -> None:
    with ir.Context() as context:
        threads = CodeThreads(context, 3)
        for job in numbered(50):
            threads.add(job)
        assert threads.results() == [bytes([n]) for n in range(50)]
        threads.close()


def test_a_result_that_somebody_waits_for() -> None:
    """A job is done once, whoever asks for its result, and asks again."""
    done: list[int] = []

    def job(number: int) -> bytes:
        done.append(number)
        return bytes([number])

    with ir.Context() as context:
        threads = CodeThreads(context, 2)
        for number in range(20):
            threads.add(partial(job, number))
        assert [threads.result(number) for number in (19, 19, 3)] == [b"\x13", b"\x13", b"\x03"]
        assert threads.results() == [bytes([n]) for n in range(20)]
        threads.close()
    assert sorted(done) == list(range(20))


def test_a_job_that_fails() -> None:
    def fail() -> bytes:
        raise LlvmError("not this one")

    with ir.Context() as context:
        threads = CodeThreads(context, 2)
        for job in [*numbered(3), fail, *numbered(3)]:
            threads.add(job)
        with pytest.raises(LlvmError, match="not this one"):
            threads.results()
        threads.close()


WHILE_PASSES_RUN = """
import threading
import mlir.ir as ir
import stablexla as sx
from stablexla.dialects.contexts import many_threads, pass_manager, upstream_context
from stablexla.targets.llvm.early_code import EarlyCode
from stablexla.targets.llvm.llvm_c import run_passes
from stablexla.targets.llvm.options import CpuOptions

context = upstream_context()
lines = "".join(f"%{i + 1} = arith.addi %{i}, %{i} : i32\\n" for i in range(20000))
with context:
    long = ir.Module.parse(f"func.func @f(%0: i32) -> i32 {{ {lines} return %20000 : i32 }}")
    empty = ir.Module.create(ir.Location.unknown())
code = EarlyCode(CpuOptions(num_threads=2))
code._start(context)
slow = pass_manager("upstream", "builtin.module(canonicalize,cse,canonicalize)", verify_each=False, number=9)
thread = threading.Thread(target=run_passes, args=(slow, long))
thread.start()
with many_threads(context):
    manager = code._managers.get()
    while thread.is_alive():
        run_passes(manager, empty)
code.close()
print("done")
"""


def test_conversions_begin_while_other_passes_run() -> None:
    """MLIR ends the process where a pass is new to a context that runs others, or threads are allowed once more."""
    done = subprocess.run([sys.executable, "-c", WHILE_PASSES_RUN], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
