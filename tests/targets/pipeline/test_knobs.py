"""Variables of the environment in programs that have more privileges than whoever started them: none is read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stablexla
from stablexla.targets.gpu.ptx import cubin
from stablexla.targets.pipeline import knobs as module
from stablexla.targets.pipeline.knobs import knobs, user_cache_folder

PROGRAM = """
import sys
sys.path[:0] = {path!r}
from stablexla.targets.pipeline import knobs
print(knobs.IS_PRIVILEGED, knobs.knobs.num_threads, knobs.knobs.cuda_driver, knobs.user_cache_folder())
"""


def test_no_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABLEXLA_CUDA_DRIVER", "/tmp/libcuda.so")
    monkeypatch.setenv("STABLEXLA_CACHE", "/tmp/cache")
    monkeypatch.setenv("XDG_CACHE_HOME", "/tmp/home")
    assert (knobs.cuda_driver, knobs.cache) == (Path("/tmp/libcuda.so"), Path("/tmp/cache"))
    assert user_cache_folder() == Path("/tmp/home")
    monkeypatch.setattr(module, "IS_PRIVILEGED", True)
    assert (knobs.cuda_driver, knobs.cache, user_cache_folder()) == (None, None, None)
    with knobs.scoped(cache=Path("/var/cache/mine")):  # the program's own
        assert knobs.cache == Path("/var/cache/mine")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has more privileges than others")
def test_a_program_with_more_privileges_than_its_caller() -> None:
    """The user is another one than the one whose privileges it has, as of a set-user-ID program."""
    environment = {**os.environ, "STABLEXLA_NUM_THREADS": "5", "STABLEXLA_CUDA_DRIVER": "/tmp/libcuda.so"}
    for real, said in ((65534, "True None None None\n"), (0, "False 5 /tmp/libcuda.so ")):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(path=[p for p in sys.path if p])],
            env=environment,
            preexec_fn=lambda real=real: os.setresuid(real, 0, 0),  # type: ignore[misc]
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.startswith(said)


def test_path_is_not_searched_for_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ptxas").write_text("#!/bin/sh\n")
    (tmp_path / "ptxas").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cubin, "PACKAGES", ())
    search = cubin._installed_ptxas.__wrapped__
    assert search() == str(tmp_path / "ptxas")
    monkeypatch.setattr(cubin, "IS_PRIVILEGED", True)
    assert search() is None


def test_native_code_asks_as_carefully() -> None:
    """`secure_getenv` gives nothing in such programs, C libraries among them."""
    sources = Path(str(stablexla.__file__)).parent / "targets" / "runtime" / "cpp"
    found = {path.name: path.read_text() for path in sources.rglob("*.cpp") if "std::getenv" in path.read_text()}
    assert sources.is_dir()
    assert [*found] == ["system.cpp"]
    assert re.findall(r"^.*std::getenv.*$", found["system.cpp"], re.M) == [
        "  return issetugid() != 0 ? nullptr : std::getenv(name);"  # of macOS
    ]
