"""docs/pipelines.md and the tutorials: files are written, commands are run in order, and print what the page says.

`...` stands for any text. Where a command measures, any figures stand for those of the page.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stablexla.targets.gpu.ptx.cubin import find_ptxas
from tests.served import serving

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
PAGES = [ROOT / "docs" / "pipelines.md", *sorted(set(TUTORIALS.glob("*.md")) - {TUTORIALS / "README.md"})]
BLOCK = re.compile(r"^```(?P<kind>python|mlir|c|console|text)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?:#|//) (?P<name>[\w.]+\.(?:py|mlir|c))\n")
TOOLS = ("compile", "opt", "run", "translate")
LIT = "-c 'from lit.main import main; main()'"
MODULES = {"jax_user.md": ["jax"], "pytorch.md": ["torch"]}
"""Extras that a page needs."""
PROGRAMS = {"c_library.md": ["cc", "c++"]}
MEASURES = re.compile(r"--profile|--time|measure_limits")
FIGURE = re.compile(r"\d+(?:\.\d+)?(?: [KMGT]iB?| [kMGT]\b)?")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The kind of each block, and its text."""
    return [(found["kind"], found["body"]) for found in BLOCK.finditer(page.read_text())]


def fits(wanted: str, printed: str) -> bool:
    pattern = re.escape(wanted.rstrip("\n")).replace(r"\.\.\.", ".*")
    return re.fullmatch(pattern, printed.rstrip("\n"), re.DOTALL) is not None


def without_figures(text: str) -> str:
    """A table of measurements without its figures, bars and column widths."""
    return re.sub(r"[ ━─█]+", " ", FIGURE.sub("N", text)).replace(" \n", "\n")


def commands(body: str) -> list[tuple[str, str]]:
    """The commands of a block, and the output of each."""
    parts = re.split(r"^\$ ", body, flags=re.MULTILINE)
    assert parts[0] == ""
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts[1:])]


def lacking(page: Path) -> list[str]:
    """Modules and programs that a page needs, and that are not installed."""
    modules = [name for name in MODULES.get(page.name, []) if importlib.util.find_spec(name) is None]
    return modules + [name for name in PROGRAMS.get(page.name, []) if shutil.which(name) is None]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The prefix of a tool's command: a fork of one server process, which has imported the tools."""
    with serving(tmp_path_factory.mktemp("served")) as command:
        yield shlex.join(command)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: str) -> Path:
    """A folder to work in, with this Python and its command line before all others."""
    tools = tmp_path / "bin"
    tools.mkdir()
    scripts = {f"stablexla-{tool}": f"{served} {tool}" for tool in TOOLS}
    scripts |= {"python": sys.executable, "lit": f"{sys.executable} {LIT}"}
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    for name, command in scripts.items():  # lit's commands have an environment of their own
        (tools / name).write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(path)} exec {command} "$@"\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_command(command: str, wanted: str) -> None:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120)
    printed = done.stdout + done.stderr
    compared = (without_figures(wanted), without_figures(printed)) if MEASURES.search(command) else (wanted, printed)
    assert fits(*compared), f"$ {command}\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_everything_on_the_page_happens(page: Path, folder: Path) -> None:
    if missing := lacking(page):
        pytest.skip(f"no {', '.join(missing)}")
    namespace: dict[str, object] = {"__name__": "page"}
    printed, ran = "", 0
    for kind, body in blocks(page):
        named = FILE.match(body)
        if kind in ("python", "mlir", "c") and named:
            (folder / named["name"]).write_text(body)
        elif kind == "console":
            for command, wanted in commands(body):
                if ".cubin" not in command or find_ptxas():
                    run_command(command, wanted)
                ran += 1
        elif kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(body, page.name, "exec"), namespace)
            printed = output.getvalue()
        elif kind == "text" and printed:
            assert fits(body, printed), printed
            printed = ""
    assert ran >= 3


def test_figures_are_any_figures() -> None:
    wanted = "row_0  row  99.6%  ████  1  6286.13  676.1 MiB/s  32.2 G  3-6\noutside  0.4%\n"
    printed = "row_0  row  8.0%   █      12  6.1    1.0 GiB/s    0       3-6\noutside     92.0%\n"
    assert fits(without_figures(wanted), without_figures(printed))
    assert not fits(without_figures(wanted), without_figures(printed.replace("row_0", "loop_0")))


def test_the_list_of_tutorials_has_all_pages() -> None:
    text = (TUTORIALS / "README.md").read_text()
    assert [page.name for page in TUTORIALS.glob("*.md") if f"({page.name})" not in text] == ["README.md"]
