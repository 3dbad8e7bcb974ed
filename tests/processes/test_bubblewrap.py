"""Programs in a process that bubblewrap confines: the command of docs/security.md works, and a worker gets nowhere.

They would fail where the page's command lacks a file that Python, MLIR or the loader needs.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %x, %x : tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""
WORKER = """
import os, socket, sys
import numpy as np
import stablexla as sx

def refused(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "done"

program = sx.compile(sys.stdin.read())
print(program(np.arange(3, dtype=np.float32)).tolist())
print(refused(lambda: open(os.path.join(sys.prefix, "planted"), "w")))
print(refused(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)))
print(os.path.exists(sys.argv[2]))
"""
BASE = ["bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--ro-bind-try", "/lib", "/lib"]
BASE += ["--ro-bind-try", "/lib64", "/lib64", "true"]


def works() -> bool:
    return shutil.which("bwrap") is not None and subprocess.run(BASE, capture_output=True, timeout=20).returncode == 0


pytestmark = pytest.mark.skipif(not works(), reason="bubblewrap is not installed, or may not make namespaces")


def confined(folder: Path, *command: str) -> list[str]:
    """The page's command up to the tool, with the folders of this Python and of the checkout."""
    page = (ROOT / "docs/security.md").read_text()
    text = re.search(r"prlimit (.*?)\n    stablexla-run", page, re.DOTALL)
    assert text is not None
    words = text[0].replace("\\\n", " ").split()[:-1]
    assert "--chdir" in words
    known = {'"$VIRTUAL_ENV"': sys.prefix, "model.mlir": str(folder / "model.mlir")}
    more = [word for path in {sys.base_prefix, str(ROOT)} for word in ("--ro-bind", path, path)]
    place = words.index("--chdir")
    return [known.get(word, word) for word in [*words[:place], *more, *words[place:]]] + list(command)


def run(command: list[str], given: str = "") -> str:
    environment = {**os.environ, "STABLEXLA_KERNEL_CACHE": "off", "PYTHONPATH": str(ROOT), "PATH": os.defpath}
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text(PROGRAM)
    tool = ["-m", "stablexla.tools.run", "model.mlir", "--time-limit", "10", "--input=[1, 2, 4]", "--print"]
    assert "[2. 4. 8.]" in run(confined(tmp_path, sys.executable, *tool))


def test_a_worker_writes_and_reaches_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as here:
        port, secret = str(here.getsockname()[1]), str(tmp_path)
        said = run(confined(tmp_path, sys.executable, "-c", WORKER, port, secret), PROGRAM)
    assert said.splitlines() == ["[0.0, 2.0, 4.0]", "OSError", "ConnectionRefusedError", "False"]
