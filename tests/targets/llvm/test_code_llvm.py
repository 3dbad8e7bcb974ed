"""A second LLVM for machine code: the same files by way of bitcode, and libraries that cannot be used."""

from __future__ import annotations

import ctypes.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvm
import mlir.ir as ir
import pytest

import stablexla as sx
from stablexla.compiling.cache import surroundings
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm.code_llvm import PACKAGE, SecondLlvm, second_llvm
from stablexla.targets.llvm.llvm_c import LlvmError, object_file
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import processor

LIBRARY = Path(next(iter(llvm.__path__)), "lib", "libLLVM.so")
"""That of MLIR's package, which can stand for a second one: it is loaded anew."""
PROGRAM = """
import hashlib, sys
import numpy as np
import stablexla as sx
b = sx.XlaBuilder("p")
x = b.parameter(0, sx.f32[300, 500])
made = sx.compile(b.build(sx.tanh(x @ b.parameter(1, sx.f32[500, 40])) + sx.sin(b.parameter(2, sx.f32[300, 40]))))
print([hashlib.sha256(file).hexdigest() for file in made._function.keep_alive.object_files()])
print(made(*(np.ones(s, np.float32) for s in ((300, 500), (500, 40), (300, 40)))).sum())
"""


def compiled_with(library: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STABLEXLA_LLVM": library}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)


def test_the_same_files_by_way_of_bitcode() -> None:
    first, second = compiled_with("off"), compiled_with(str(LIBRARY))
    assert (first.returncode, first.stderr) == (0, "")
    assert (second.returncode, second.stderr) == (0, "")
    assert first.stdout == second.stdout


def test_the_extra() -> None:
    found = _of_extra()
    if found is None:
        pytest.skip(f"{PACKAGE} is not installed")
    assert found.version.startswith(("22.", "23."))
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1] == compiled_with("off").stdout.splitlines()[1]


def _of_extra() -> SecondLlvm | None:
    with knobs.scoped(llvm=None):
        return second_llvm()


def test_a_target_machine_is_used_again() -> None:
    """Files do not depend on what a machine compiled before, nor on threads; one of another processor is another."""
    text = "llvm.func @f(%x: f32) -> f32 { %y = llvm.fadd %x, %x : f32 llvm.return %y : f32 }"
    other = next(iter(processor.LEVELS))

    def file(cpu: str = "") -> bytes:
        return object_file(ir.Module.parse(text, upstream_context()), 1, cpu=cpu)

    first, of_other = file(), file(other)
    with pytest.raises(LlvmError):
        object_file(ir.Module.parse("func.func private @g()", upstream_context()), 1)
    with ThreadPoolExecutor(2) as pool:
        assert set(pool.map(lambda _: file(), range(8))) == {first}
    assert (file(), file(other)) == (first, of_other)


def test_off() -> None:
    with knobs.scoped(llvm="off"):
        assert second_llvm() is None
        assert surroundings()[-1] == ""
    with knobs.scoped(llvm=LIBRARY):
        assert surroundings()[-1].startswith(f"{LIBRARY} ")


def test_what_is_no_llvm(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    for path, said in (
        (tmp_path / "text.so", "no LLVM that can be used"),
        (tmp_path / "nowhere.so", "No such file"),
        (ctypes.util.find_library("m") or "libm.so.6", "undefined symbol: LLVMGetVersion"),
    ):
        with pytest.raises(sx.CompileError, match=rf"{said}(?s:.)*STABLEXLA_LLVM=off"):
            SecondLlvm.load(Path(path))


def test_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.targets.llvm.code_llvm.OLDEST", 99)
    with pytest.raises(sx.CompileError, match=r"LLVM 22, where 99 or later is needed"):
        SecondLlvm.load(LIBRARY)


def test_an_error_of_translation_is_the_same() -> None:
    code = """
import mlir.ir as ir
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm.llvm_c import LlvmError, object_file
module = ir.Module.parse("func.func @f() { return }", upstream_context())
try:
    object_file(module, 1)
except LlvmError as error:
    print(error)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "STABLEXLA_LLVM": library}, capture_output=True, text=True
        ).stdout
        for library in ("off", str(LIBRARY))
    ]
    assert said == ["the module has no translation to LLVM\n"] * 2


FIRST_THREADS = """
import threading
from stablexla.targets.llvm import llvm_c
barrier = threading.Barrier(8)
found = []
def first():
    barrier.wait(60)
    found.append(llvm_c._code_library())
threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found), len(set(map(id, found))))
"""


def test_several_threads_are_the_first() -> None:
    """LLVM ends a process that parses its options twice at once."""
    done = subprocess.run([sys.executable, "-c", FIRST_THREADS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "8 1\n"), done.stderr
