"""Runs the README's first program and `stablexla-run` on a file, with the stablexla installed for this Python.

Needs nothing but the standard library and the README above it. Programs run in a folder of their own, isolated from
the checkout, and with a PATH that has the environment's scripts alone: no compiler can be found.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
PROGRAM = re.compile(r"```python\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)
MODULE = """
func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.add %x, %x : tensor<3xf32>
  return %y : tensor<3xf32>
}
"""
WHERE = "import stablexla; print(stablexla.__file__, stablexla.__version__)"


def try_installed(folder: Path) -> None:
    """Raises RuntimeError, with what was printed, where the installed package does not do as the README says."""
    said = _run([sys.executable, "-I", "-c", WHERE], folder)
    if README.parent in Path(said.split()[0]).parents:
        raise RuntimeError(f"not installed: the checkout is imported, {said}")
    print(said, end="")
    readme = PROGRAM.search(README.read_text())
    assert readme is not None, "the README has no program"
    (folder / "program.py").write_text(readme["code"])
    _compare("README.md", _run([sys.executable, "-I", "program.py"], folder), readme["output"])
    (folder / "model.mlir").write_text(MODULE)
    command = [f"{sysconfig.get_path('scripts')}/stablexla-run", "model.mlir", "--input=ones", "--print"]
    _compare("stablexla-run", _run(command, folder), "result 0: f32[3]\n[2. 2. 2.]\n")


def _run(command: Sequence[str], folder: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "LC_ALL", "TMPDIR")}
    kept["PATH"] = sysconfig.get_path("scripts")
    done = subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed\n{done.stdout}{done.stderr}")
    return done.stdout


def _compare(what: str, printed: str, expected: str) -> None:
    if printed != expected:
        raise RuntimeError(f"{what} printed\n{printed}and not\n{expected}")
    print(f"{what}: ok")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        try_installed(Path(place))
