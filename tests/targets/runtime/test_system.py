"""The operating system interface for macOS, as far as it runs elsewhere: names, texts, object files, waiting threads.

Oracles: LLVM's tools on the files; this machine's way beside macOS's; Apple's lists of features. `apple_convention.py`
runs other tests with code as macOS gets it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.ahead_of_time import compile_library
from stablexla.dialects import system
from stablexla.dialects.builds import private_libraries
from stablexla.targets.llvm import llvm_c
from stablexla.targets.llvm.toolchain import llvm_tool
from stablexla.targets.pipeline.standard_error import captured_stderr
from stablexla.targets.runtime import processor
from stablexla.targets.runtime._runtime import find_symbol, flags_of_names, relocated

ROOT = Path(__file__).parents[3]
CORE = ROOT / "targets" / "runtime" / "cpp" / "core"
COMPILER = shutil.which("g++") or shutil.which("clang++")
TRIPLE = "arm64-apple-macosx14.0"
ELF = llvm_c.elf_triple(TRIPLE.encode()).decode()

# Of `sysctl hw.optional`, in the versions of macOS that Apple's first and second processors have.
M1 = """
hw.optional.AdvSIMD: 1
hw.optional.armv8_crc32: 1
hw.optional.arm.FEAT_AES: 1
hw.optional.arm.FEAT_BF16: 0
hw.optional.arm.FEAT_BTI: 0
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_FCMA: 1
hw.optional.arm.FEAT_FHM: 1
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_FRINTTS: 1
hw.optional.arm.FEAT_FlagM: 1
hw.optional.arm.FEAT_FlagM2: 1
hw.optional.arm.FEAT_I8MM: 0
hw.optional.arm.FEAT_JSCVT: 1
hw.optional.arm.FEAT_LRCPC: 1
hw.optional.arm.FEAT_LRCPC2: 1
hw.optional.arm.FEAT_LSE: 1
hw.optional.arm.FEAT_PMULL: 1
hw.optional.arm.FEAT_RDM: 1
hw.optional.arm.FEAT_SHA1: 1
hw.optional.arm.FEAT_SHA256: 1
hw.optional.arm.FEAT_SHA3: 1
hw.optional.arm.FEAT_SHA512: 1
"""
M2 = M1.replace("BF16: 0", "BF16: 1").replace("I8MM: 0", "I8MM: 1").replace("BTI: 0", "BTI: 1")


def features_in(text: str) -> frozenset[str]:
    return frozenset(flags_of_names(set(re.findall(r"^hw\.optional\.(\S+): 1$", text, re.M))))


def test_features_of_apples_processors() -> None:
    first, second = features_in(M1), features_in(M2)
    assert second - first == {"bf16", "i8mm"}
    assert first >= processor.LEVELS["neoverse-n1"]
    assert second >= processor.LEVELS["neoverse-v1"] - {"sve"}
    assert flags_of_names(set()) == {"fp", "asimd"}
    told = {text: processor.llvm_features(flags).split(",") for text, flags in (("M1", first), ("M2", second))}
    assert {"+dotprod", "+fullfp16", "-i8mm", "-bf16", "-sve"} <= set(told["M1"])
    assert {"+i8mm", "+bf16", "-sve"} <= set(told["M2"])


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The Python side as on macOS, and what its kernel says by name."""
    values: dict[str, bytes] = {}
    monkeypatch.setattr(system, "IS_MACOS", True)
    monkeypatch.setattr(private_libraries, "IS_MACOS", True)
    monkeypatch.setattr(system, "sysctl", lambda name: values.get(name, b""))
    return values


def test_what_the_kernel_says(macos: dict[str, bytes]) -> None:
    assert system.cache_bytes() == (None, None, None)
    macos |= {
        "machdep.cpu.brand_string": b"Apple M2 Pro\0",
        "kern.bootsessionuuid": b"1B4E28BA-2FA1-11D2-883F-0016D3CCA427\0",
        "hw.perflevel0.l1dcachesize": (128 << 10).to_bytes(8, "little"),
        "hw.perflevel0.l2cachesize": (16 << 20).to_bytes(4, "little"),
        "hw.perflevel0.cpusperl2": (4).to_bytes(4, "little"),
    }
    assert system.processor_name() == "Apple M2 Pro"
    assert system.cache_bytes() == (128 << 10, 4 << 20, 16 << 20)
    assert system.place() == (0x1B4E28BA2FA111D, 0)
    assert system.shared_library("libLLVM") == "libLLVM.dylib"
    assert system.mapped_bytes() is None


def test_files_without_a_name_hold_messages(macos: dict[str, bytes]) -> None:
    with captured_stderr() as lines:
        os.write(2, b"error: of native code\n\nand more\n")
    assert lines == ["error: of native code", "and more"]


CHILD = """
import os, sys
from stablexla.dialects import system
system.IS_MACOS = True
os.setpgid(0, 0)
system.end_group_with(int(sys.argv[1]))
print("ready", flush=True)
while True:
    pass
"""


def test_a_process_ends_with_its_lifeline() -> None:
    """By the shell that macOS needs, also out of an endless loop."""
    theirs, lifeline = os.pipe()
    command = [sys.executable, "-c", CHILD, str(theirs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(theirs,)) as child:
        os.close(theirs)
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == b"ready\n"
            assert child.poll() is None
        finally:
            os.close(lifeline)
        try:
            assert child.wait(timeout=60) == -signal.SIGKILL
        finally:
            child.kill()


def test_no_copies_of_libraries(macos: dict[str, bytes]) -> None:
    assert private_libraries.find_private_spec("mlir._mlir_libs._mlir") is None
    assert private_libraries.deep_binding() == 0


@pytest.mark.skipif(system.IS_MACOS, reason="of Linux's files")
def test_what_linux_says() -> None:
    assert system.sysctl("hw.ncpu") == b""
    files = system.loaded_files()
    assert any(Path(file).name.startswith("_runtime.") for file in files)
    assert all(file[0] == "/" for file in files)
    number, space = system.place()
    assert number > 0
    assert space == os.stat("/proc/self/ns/pid").st_ino
    mapped = system.mapped_bytes()
    assert mapped is not None
    assert mapped > 1 << 20


# ---- object files ----------------------------------------------------------------------------------------------------


def model() -> sx.Computation:
    """Constants, loops, and products, which take all registers there are."""
    b = sx.XlaBuilder("model")
    x = b.parameter(0, sx.f32[48, 64], name="x")
    weights = b.constant(np.linspace(-1, 1, 64 * 96, dtype=np.float32).reshape(64, 96))
    y = sx.dot(x, weights)
    return b.build(sx.tuple([sx.tanh(y), sx.reshape(y, (96, 48)) * 2.0]))


def tool(name: str, *words: str | Path) -> str:
    return subprocess.run([llvm_tool(name), *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def ir_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program's LLVM IR for AArch64."""
    path = tmp_path_factory.mktemp("ir") / "model.ll"
    compile_library(model(), path, cpu="armv8-a", triple=TRIPLE)
    return path


def object_for(triple: str, ir_text: Path, folder: Path) -> Path:
    """An object file as the loader takes it: with the relocation and code model of AArch64."""
    output = folder / f"{triple}.o"
    options = [f"-mtriple={triple}", "-mcpu=apple-m1", "-filetype=obj", "-relocation-model=pic", "-code-model=small"]
    tool("llc", "-O2", *options, ir_text, "-o", output)
    return output


def test_objects_for_the_loader(ir_text: Path, tmp_path: Path) -> None:
    """ELF of a triple of Apple's: without the register that macOS takes, and with nothing that the loader lacks."""
    mine, other = (object_for(triple, ir_text, tmp_path) for triple in (ELF, "aarch64-linux-gnu"))
    assert "Machine: EM_AARCH64" in tool("llvm-readobj", "--file-headers", mine)
    reserved = {file: len(re.findall(r"\b[xw]18\b", tool("llvm-objdump", "-d", file))) for file in (mine, other)}
    assert reserved[mine] == 0 < reserved[other]
    numbers = {int(n, 16) & 0xFFFF_FFFF for n in re.findall(r"^[0-9a-f]{16}  ([0-9a-f]{16})", relocations(mine), re.M)}
    assert numbers
    for number in numbers:  # a value for which all of them fit
        assert len(relocated(183, number, bytes(8), 0x10000, 0x10000)) == 8
    names = re.findall(r"\bU (\S+)", tool("llvm-nm", "-u", mine))
    assert "stablexla_run_program" in names
    assert [name for name in names if name[0] == "_" or not (name.startswith("stablexla_") or find_symbol(name))] == []


def relocations(file: Path) -> str:
    return tool("llvm-readelf", "--relocations", "--wide", file)


SMALL = """
declare i32 @many(i64, i64, i64, i64, i64, i64, i64, i64, i8, i16, i32)
define i32 @calls(i8 %a, i16 %b) {
  %r = call i32 @many(i64 1, i64 2, i64 3, i64 4, i64 5, i64 6, i64 7, i64 8, i8 %a, i16 %b, i32 9)
  ret i32 %r
}
"""


@pytest.mark.parametrize(("triple", "places"), [(ELF, [0, 2, 4]), ("aarch64-linux-gnu", [0, 8, 16])])
def test_arguments_in_memory(triple: str, places: list[int], tmp_path: Path) -> None:
    """Apple's convention packs them by their sizes, Arm's has eight bytes for each."""
    (tmp_path / "small.ll").write_text(SMALL)
    code = tool("llvm-objdump", "-d", object_for(triple, tmp_path / "small.ll", tmp_path))
    stored = re.findall(r"str[bh]?\s+w\d+, \[sp(?:, #0x([0-9a-f]+))?\]", code)
    assert sorted({int(place or "0", 16) for place in stored}) == places


def test_a_c_object_for_macos(tmp_path: Path) -> None:
    """Mach-O, with its own names of symbols and sections; the runtime and C's library are what it calls."""
    output = tmp_path / "model.o"
    compile_library(model(), output, triple=TRIPLE, header_file=tmp_path / "model.h")
    head = tool("llvm-readobj", "--file-headers", output)
    assert "Format: Mach-O arm64" in head
    symbols = tool("llvm-nm", output)
    defined = {name: kind for kind, name in re.findall(r" ([A-Zs]) (\S+)$", symbols, re.M)}
    assert {name for name, kind in defined.items() if kind == "T"} == {
        "_model",
        "_model_main",
        "_model_use_threads",
    }
    assert defined["_stablexla.model.constant0"] == "S"
    assert "_stablexla_run_program" in re.findall(r" U (\S+)", symbols)
    assert "__const" in tool("llvm-readobj", "--sections", output)


# ---- the runtime -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_waiting_without_futexes(tmp_path: Path) -> None:
    program = tmp_path / "parked"
    command = [str(COMPILER), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{CORE}", "-pthread"]
    subprocess.run([*command, Path(__file__).with_name("parked.cpp"), "-o", program], check=True, timeout=120)
    assert subprocess.run([program], check=False, timeout=60).returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no compiler for macOS: pip install ziglang")
@pytest.mark.parametrize("file", ["system", "object_code", "guard_faults", "standalone"])
def test_the_runtime_compiles_for_macos(file: str, tmp_path: Path) -> None:
    """The files that differ; `third_party/macos.py` compiles and links all of them."""
    output = tmp_path / f"{file}.o"
    zig = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-macos.14.0", "-std=c++17", "-Wall", "-Wextra"]
    subprocess.run([*zig, "-Werror", "-c", CORE / f"{file}.cpp", "-o", output], check=True, timeout=300)
    assert "Format: Mach-O arm64" in tool("llvm-readobj", "--file-headers", output)
