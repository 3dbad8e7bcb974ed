"""Every module imports by itself, whichever is the first: no import waits for another that is half done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# A forked process for each module: it has the bindings of both MLIRs, and nothing of the project.
SCRIPT = """
import os, sys, traceback
import jaxlib.mlir.ir, mlir.ir, numpy

for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            __import__(name)
        except BaseException:
            print(name, traceback.format_exc().splitlines()[-1], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def _modules(layer: str) -> list[str]:
    files = sorted((ROOT / layer).glob("**/*.py")) if layer != "stablexla" else sorted((ROOT / layer).glob("*/**/*.py"))
    # The links in stablexla/ are the other layers.
    own = [f.relative_to(ROOT) for f in files if not any(p.is_symlink() for p in f.parents) and f.stem != "__init__"]
    return [".".join((*(("stablexla",) if layer != "stablexla" else ()), *f.with_suffix("").parts)) for f in own]


LAYERS = ("stablexla", "dialects", "lowering", "targets")
PARTS = 18


def test_all_modules_take_part() -> None:
    assert all(len(_modules(layer)) > 20 for layer in LAYERS)


@pytest.mark.parametrize("part", range(PARTS))
def test_each_module_imports_first(part: int) -> None:
    names = [name for layer in LAYERS for name in _modules(layer)][part::PARTS]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr[-2000:]
