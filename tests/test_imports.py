"""Every module imports by itself, whichever is the first: no import waits for another that is half done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A forked process for each module: it has the libraries, which the first child finds, and nothing of the project.
SCRIPT = """
import importlib, os, sys, traceback
import jaxlib.mlir.ir, mlir.ir, numpy

def fork(work):
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child

def note_libraries():
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except BaseException:
            pass  # said below
    layers = ("stablexla", "dialects", "lowering", "targets", "__main__")
    with os.fdopen(writing, "w") as pipe:
        pipe.write(" ".join(name for name in sys.modules if name.split(".")[0] not in layers))

def import_first():
    try:
        importlib.import_module(name)
    except BaseException:
        print(name, traceback.format_exc().splitlines()[-1], flush=True)

reading, writing = os.pipe()
child = fork(note_libraries)
os.close(writing)
libraries = os.fdopen(reading).read().split()  # before the child ends: a pipe holds 64 KiB
os.waitpid(child, 0)
for name in libraries:
    importlib.import_module(name)
assert not any(name.split(".")[0] == "stablexla" for name in sys.modules)
for name in sys.argv[1:]:
    os.waitpid(fork(import_first), 0)
"""


def _modules(layer: str) -> list[str]:
    files = sorted((ROOT / layer).glob("**/*.py")) if layer != "stablexla" else sorted((ROOT / layer).glob("*/**/*.py"))
    # The links in stablexla/ are the other layers.
    own = [f.relative_to(ROOT) for f in files if not any(p.is_symlink() for p in f.parents) and f.stem != "__init__"]
    return [".".join((*(("stablexla",) if layer != "stablexla" else ()), *f.with_suffix("").parts)) for f in own]


LAYERS = ("stablexla", "dialects", "lowering", "targets")
PARTS = 12


def test_all_modules_take_part() -> None:
    assert all(len(_modules(layer)) > 20 for layer in LAYERS)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_module_imports_first(part: int) -> None:
    names = [name for layer in LAYERS for name in _modules(layer)][part::PARTS]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
