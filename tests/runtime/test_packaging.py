"""An ordinary wheel holds every module of the four folders, inside the one package, and works from where it lies.

The suite itself runs on whatever is installed, usually in place. Oracle: the files in the repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stablexla.targets.cpu.toolchain import ARCHIVE
from stablexla.version import VERSION
from tests.once import made_once

ROOT = Path(__file__).parents[2]
LAYERS = ("dialects", "lowering", "targets")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the repository, unpacked. No network: the build's requirements are in the dev extra."""
    return made_once(tmp_path_factory, "wheel", _build_wheel) / "unpacked"


def _build_wheel(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", f"-Cbuild-dir={folder}/build", f"--wheel-dir={folder}", str(ROOT)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")


def python_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for suffix in ("py", "pyi") for path in folder.rglob(f"*.{suffix}")}


def test_every_module_is_in_the_wheel(unpacked):
    wanted = python_files(ROOT / "stablexla")
    for layer in LAYERS:
        wanted |= {f"{layer}/{path}" for path in python_files(ROOT / layer)}
    assert python_files(unpacked / "stablexla") == wanted
    assert (unpacked / "stablexla/py.typed").exists()
    assert len(list(unpacked.glob("stablexla/targets/runtime/_runtime*.so"))) == 1
    assert (unpacked / "stablexla/targets/runtime" / ARCHIVE).exists()
    assert {path.name.split("-")[0] for path in unpacked.iterdir()} == {"stablexla"}


SCRIPT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
import stablexla, stablexla.dialects.pins, stablexla.lowering, stablexla.targets.runtime as runtime
for module in (stablexla, stablexla.dialects, stablexla.lowering, runtime):
    print(module.__file__)
print(runtime.library_path(), runtime.get_num_threads())
"""


def test_the_wheel_works_where_it_lies(unpacked):
    command = [sys.executable, "-I", "-c", SCRIPT, str(unpacked)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(unpacked)) for line in done.stdout.splitlines())


def test_entry_points_and_metadata(unpacked):
    [info] = unpacked.glob("*.dist-info")
    scripts = (info / "entry_points.txt").read_text()
    assert "stablexla-compile=stablexla.tools.compile:main" in scripts.replace(" ", "")
    assert "stablexla-opt=stablexla.tools.opt:main" in scripts.replace(" ", "")
    assert "stablexla-run=stablexla.tools.run:main" in scripts.replace(" ", "")
    metadata = (info / "METADATA").read_text()
    assert f"Version: {VERSION}\n" in metadata
    assert "License-Expression: Apache-2.0 WITH LLVM-exception" in metadata
    for extra in ("jax", "mpi", "gpu", "bench", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
    assert "LLVM Exceptions" in next(info.rglob("LICENSE")).read_text()
