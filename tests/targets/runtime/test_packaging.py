"""An sdist holds what a wheel is built of; the wheel holds every module of the four folders, inside the one package.
It works where it is installed, without a compiler.

The suite itself runs on whatever is installed, usually in place. Oracles: the files in the repository, and the README.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from stablexla.targets.llvm.toolchain import ARCHIVE
from stablexla.version import VERSION
from tests.once import made_once

ROOT = Path(__file__).parents[3]
LAYERS = ("dialects", "lowering", "targets")


SDIST = "from scikit_build_core.build import build_sdist; import sys; build_sdist(sys.argv[1])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, the wheel, and that unpacked. No network: the build's requirements are in the dev extra.

    The wheel is built where the environment was, so that the runtime is compiled once; a release builds from the sdist.
    """
    return made_once(tmp_path_factory, "wheel", _build)


@pytest.fixture(scope="module")
def unpacked(built: Path) -> Path:
    return built / "unpacked"


def _build(folder: Path) -> None:
    _run([sys.executable, "-c", SDIST, str(folder)])
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    _run([*command, "--disable-pip-version-check", f"--wheel-dir={folder}", str(ROOT)])
    [wheel] = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "unpacked")


def _run(command: Sequence[str]) -> str:
    """What a command says that finds the environment's programs, such as CMake, and runs in the repository."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
    others = {path.suffix for path in unpacked.rglob("*") if path.is_file() and "dist-info" not in str(path)}
    assert others == {".py", ".pyi", ".typed", ".so", ".a", ".css", ".js"}  # no tests, sources or pages


def test_the_sdist_is_what_a_wheel_is_built_of(built):
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = [name.split("/")[1:] for name in archive.getnames()]
    native = {path.relative_to(ROOT).as_posix() for path in (ROOT / "targets/runtime/cpp").rglob("*") if path.is_file()}
    assert native <= {"/".join(name) for name in names}
    files = {"CHANGELOG.md", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert {name[0] for name in names} == {*files, "stablexla", *LAYERS}


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment outside the checkout with the wheel; the packages that it needs are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    (site_packages(folder) / "needed.pth").write_text(sysconfig.get_path("platlib"))
    [wheel] = built.glob("*.whl")
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    _run([sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), *install])
    return folder


def site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def test_installed_in_a_clean_environment(environment):
    said = _run([str(environment / "bin/python"), str(ROOT / "releasing/try_installed.py")])
    where = site_packages(environment) / "stablexla/__init__.py"
    assert said == f"{where} {VERSION}\nREADME.md: ok\nstablexla-run: ok\n"


USER = """
import stablexla as sx

b = sx.XlaBuilder("p")
compiled = sx.compile(b.build(sx.exp(b.parameter(0, sx.f32[2]))))
reveal_type(compiled)
sx.exp(compiled)
sx.gpu.put(sx.__version__)
sx.missing
"""


def test_a_users_program_is_type_checked(environment, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    python = ["--python-executable", str(environment / "bin/python"), "--cache-dir", os.devnull]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", *python, "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    found = [line.split(": ", 1)[1] for line in done.stdout.splitlines()[:-1]]
    assert found[0] == 'note: Revealed type is "stablexla.executable.executable.Executable"', done.stdout
    assert found[1].startswith('error: Argument 1 to "exp" has incompatible type "Executable"')
    assert found[2:] == ['error: Module has no attribute "missing"  [attr-defined]']


SCRIPT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
import stablexla, stablexla.dialects.builds.pins, stablexla.lowering, stablexla.targets.runtime as runtime
for module in (stablexla, stablexla.dialects, stablexla.lowering, runtime):
    print(module.__file__)
print(runtime.library_path(), runtime.get_num_threads())
"""


def test_the_wheel_works_where_it_lies(unpacked):
    # -B: another worker may be looking at what the wheel holds
    command = [sys.executable, "-I", "-B", "-c", SCRIPT, str(unpacked)]
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
    assert "Project-URL: Repository, https://" in metadata
    assert "Classifier: Typing :: Typed" in metadata
    for extra in ("jax", "mpi", "gpu", "bench", "dev"):
        assert f"Provides-Extra: {extra}" in metadata
    assert "LLVM Exceptions" in next(info.rglob("LICENSE")).read_text()
