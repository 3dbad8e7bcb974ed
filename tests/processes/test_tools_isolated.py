"""The command-line tools with `--isolated`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = Path(__file__).with_name("failing_passes.py")
TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"stablexla.tools.{name}", *map(str, arguments), "--isolated"]
    return subprocess.run(command, input=TEXT, capture_output=True, text=True, timeout=120, check=False)


def test_opt_prints_what_it_would_print() -> None:
    done = tool("opt", "-", "-cse", "--time-limit=60")
    assert (done.returncode, done.stderr) == (0, "")
    assert "func.func @main" in done.stdout
    assert tool("opt", "-", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-test-abort"], "error: the process ended (SIGABRT)\n  driver.cpp:7: void run(): Assertion `the test"),
        (["-test-hang", "--time-limit", "5"], "error: it took more than 5 s"),
    ],
)
def test_opt_tells_of_a_crash(arguments: list[str], said: str) -> None:
    done = tool("opt", "-", f"--load={PASSES}", "--context=upstream", *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(said)


def test_run_reads_the_program_apart(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGRTMIN + 6)\n")
    done = tool("run", "-", f"--load={tmp_path / 'crash.py'}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: the process ended (signal {signal.SIGRTMIN + 6})\n"


def test_run_and_compile(tmp_path: Path) -> None:
    (tmp_path / "in.mlir").write_text(TEXT)
    done = tool("run", tmp_path / "in.mlir", "--input=1", "--print")
    assert (done.returncode, done.stderr) == (0, "")
    done = tool("compile", tmp_path / "in.mlir", "-o", tmp_path / "out.o")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.o").exists()
