"""docs/pipelines.md: its files are written, its commands run in order, and its programs print what it says.

`...` stands for any text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "pipelines.md"
BLOCK = re.compile(r"^```(?P<kind>python|mlir|console|text)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:#|//) (?P<name>\w+\.(?:py|mlir))\n")


def blocks() -> list[tuple[str, str]]:
    """What kind each block is of, and its text."""
    return [(found["kind"], found["body"]) for found in BLOCK.finditer(PAGE.read_text())]


def fits(wanted: str, printed: str) -> bool:
    pattern = re.escape(wanted.rstrip("\n")).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


def commands(body: str) -> list[tuple[str, str]]:
    """The commands of a block, and what each prints."""
    parts = re.split(r"^\$ ", body, flags=re.MULTILINE)
    assert parts[0] == ""
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts[1:])]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the command line of this Python before all others."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("opt", "run"):
        script = tools / f"stablexla-{tool}"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m stablexla.tools.{tool} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_everything_on_the_page_happens(folder: Path) -> None:
    namespace: dict[str, object] = {"__name__": "page"}
    printed, ran = "", 0
    for kind, body in blocks():
        named = FILE.match(body)
        if kind in ("python", "mlir") and named:
            (folder / named["name"]).write_text(body)
        elif kind == "console":
            for command, wanted in commands(body):
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
                assert fits(wanted, done.stdout + done.stderr), f"$ {command}\n{done.stdout}{done.stderr}"
                ran += 1
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(body, PAGE.name, "exec"), namespace)
            printed = output.getvalue()
        elif kind == "text" and printed:
            assert fits(body, printed), printed
            printed = ""
    assert ran >= 12
