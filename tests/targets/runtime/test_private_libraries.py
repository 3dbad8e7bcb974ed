"""`mlir` beside other distributions of MLIR in one process, in every order.

The other distribution is a fake one: two libraries with the names of upstream's build and one that is linked with them,
as IREE's are. Where IREE is installed, it is tried as well. Oracles: numpy, and what the fake library answers.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from stablexla.dialects.builds.elf_names import rename_libraries

COMPILE = """
import numpy as np, stablexla as sx
b = sx.XlaBuilder("double")
x = b.parameter(0, sx.f32[3])
assert sx.compile(b.build(sx.add(x, x)))(np.arange(3, dtype=np.float32)).tolist() == [0, 2, 4]
"""
USE_OTHER = """
import ctypes
assert ctypes.CDLL(FOLDER + "/libother.so").other() == 42
"""
USE_IREE = """
import iree.compiler.ir as other
with other.Context() as context:
    assert "module" in str(other.Module.parse("module {}", context))
"""
NO_MEMORY_TO_EXECUTE = """
import os
made = os.memfd_create
def refused(name, *flags):
    if ".so" in name:
        raise PermissionError("no memory may be executed here")
    return made(name, *flags)
os.memfd_create = refused
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package `other-mlir`; `libother.so` needs what is in its own libraries alone."""
    folder = tmp_path_factory.mktemp("other")
    library(folder, "libnanobind-mlir.so", 'extern "C" int other_bindings() { return 40; }')
    library(folder, "libMLIRPythonSupport-mlir.so", 'extern "C" int other_support() { return 2; }')
    calls = 'extern "C" int other_bindings(), other_support();\nextern "C" int other() '
    calls += "{ return other_bindings() + other_support(); }"
    library(folder, "libother.so", calls, "-lnanobind-mlir", "-lMLIRPythonSupport-mlir")
    library(folder, "libMLIRPythonCAPI.so", 'extern "C" int other_interface() { return 1; }')
    (folder / "other_mlir-1.0.dist-info").mkdir()
    (folder / "other_mlir-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: other-mlir\nVersion: 1.0\n")
    record = "".join(f"{path.name},,\n" for path in folder.glob("*.so"))
    (folder / "other_mlir-1.0.dist-info/RECORD").write_text(record)
    return folder


def library(folder: Path, name: str, source: str, *linked: str) -> None:
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(folder / name), f"-Wl,-soname,{name}"]
    command += [f"-L{folder}", "-Wl,-rpath,$ORIGIN", *linked]
    subprocess.run(command, input=source, text=True, check=True, timeout=60)


def run(script: str, folder: Path | None = None) -> str:
    """What a new process says that runs `script`."""
    place = f"import sys\nFOLDER = {str(folder)!r}\nsys.path.append(FOLDER)\n" if folder else ""
    command = [sys.executable, "-c", place + script]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stderr


@pytest.mark.parametrize("script", [USE_OTHER + COMPILE, COMPILE + USE_OTHER], ids=["after", "before"])
def test_beside_libraries_of_the_same_names(other: Path, script: str) -> None:
    assert run(script, other) == ""


@pytest.mark.parametrize("script", [USE_IREE + COMPILE + USE_IREE, COMPILE + USE_IREE + COMPILE])
def test_beside_iree(script: str) -> None:
    pytest.importorskip("iree.compiler", reason="iree-base-compiler (extra bench) is not installed")
    assert run(script) == ""


def test_beside_symbols_that_are_shown_to_all(tmp_path: Path) -> None:
    """TensorFlow's MLIR and LLVM are found before those of libraries that are loaded later, or bound later."""
    names = ("_ZN4mlir11MLIRContextC1ENS0_9ThreadingE", "_ZN4mlir15parsePassPipeline", "mlirModuleCreateParse")
    names = (*names, "LLVMContextCreate", "_ZN4mlir9Operation5eraseEv", "_ZN4mlir6verifyEPNS_9OperationEb")
    stopped = "".join(f'extern "C" void {name}() {{ __builtin_trap(); }}\n' for name in names)
    library(tmp_path, "libtensorflow_cc.so.2", stopped)
    package = tmp_path / "tensorflow"
    package.mkdir()
    shown = 'ctypes.CDLL(f"{Path(__file__).parents[1]}/libtensorflow_cc.so.2", ctypes.RTLD_GLOBAL)'
    (package / "__init__.py").write_text(f"import ctypes\nfrom pathlib import Path\n{shown}\n")
    other = (
        COMPILE.replace("double", "again").replace("f32[3]", "f32[4]").replace("(3,", "(4,").replace("4]\n", "4, 6]\n")
    )
    for script in ("import tensorflow" + COMPILE, COMPILE + "import tensorflow" + other):
        assert run(script + "print('done', file=sys.stderr)", tmp_path) == "done\n"


def test_a_library_that_is_not_copied_is_taken(other: Path) -> None:
    """The linker would hand the other package's functions to `mlir`: refused at once, by its name."""
    said = run('import ctypes\nctypes.CDLL(FOLDER + "/libMLIRPythonCAPI.so")' + COMPILE, other)
    assert "LibraryConflictError: mlir cannot be loaded: another package has loaded libraries of the same names" in said
    assert f"libMLIRPythonCAPI.so  {other}/libMLIRPythonCAPI.so, of other-mlir 1.0\n  try: use the two in" in said


def test_where_no_memory_may_be_executed(other: Path) -> None:
    """The libraries themselves are loaded, and the conflict is an error that names both of them."""
    assert run(NO_MEMORY_TO_EXECUTE + COMPILE) == ""
    said = run(NO_MEMORY_TO_EXECUTE + USE_OTHER + COMPILE, other)
    for name in ("libnanobind-mlir.so", "libMLIRPythonSupport-mlir.so"):
        assert f"{other}/{name}, of other-mlir 1.0" in said


def test_bindings_that_are_there_already_are_used() -> None:
    assert run("import mlir.ir" + COMPILE) == ""


def test_after_an_import_of_the_bindings_that_failed(other: Path) -> None:
    """Without stablexla `mlir` gets the other package's libraries."""
    failed = "try: import mlir.ir\nexcept ImportError as error: assert 'undefined symbol' in str(error)\nelse: assert 0"
    assert run(USE_OTHER + failed + COMPILE, other) == ""


def test_types_that_are_bound_are_kept_apart() -> None:
    """nanobind keeps them in the interpreter, by its version and the name of the bindings alone."""
    script = """
import ctypes, stablexla, mlir.ir
held = ctypes.pythonapi.PyInterpreterState_GetDict
held.restype, held.argtypes = ctypes.py_object, [ctypes.c_void_p]
ctypes.pythonapi.PyInterpreterState_Get.restype = ctypes.c_void_p
kept = held(ctypes.pythonapi.PyInterpreterState_Get())
ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))  # the function lends it
keys = [key for key in kept if "_internals_" in key]
assert len(keys) == 1 and keys[0].startswith("__sx_internals_"), keys
assert mlir._mlir_libs._mlir.__file__.endswith(".so") and "site-packages" in mlir._mlir_libs._mlir.__file__
"""
    assert run(script) == ""


def test_renamed_libraries(other: Path) -> None:
    image = mmap.mmap(-1, (other / "libother.so").stat().st_size)
    image.write((other / "libother.so").read_bytes())
    rename_libraries(image, {b"libnanobind-mlir.so": b"libnanobind-else.so", b"libother.so": b"libelses.so"})
    (other / "renamed.so").write_bytes(image)
    listed = subprocess.run(["readelf", "-d", str(other / "renamed.so")], capture_output=True, text=True, check=True)
    for expected in ("library: [libnanobind-else.so]", "library: [libMLIRPythonSupport-mlir.so]", "[libelses.so]"):
        assert expected in listed.stdout
    assert "libnanobind-mlir.so" not in listed.stdout
    with pytest.raises(ValueError, match="is not as long as"):
        rename_libraries(image, {b"libelses.so": b"short"})
    image[:4] = b"None"
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF"):
        rename_libraries(image, {})
