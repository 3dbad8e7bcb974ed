"""What the tools show on a terminal: tables that fit, errors and IR in colours; none in pipes and with NO_COLOR."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stablexla.dialects.display.html_table import html_table
from stablexla.dialects.display.mlir_text import ansi_text, html_code, html_tokens, tokens
from stablexla.dialects.display.tables import console, plain_table, show_table
from stablexla.dialects.element_types import element_type
from stablexla.lowering.support.types import TensorType
from stablexla.targets.signature.interface import Signature
from stablexla.tools import cache, run
from stablexla.tools.terminal import highlighted, print_error, print_errors

PROGRAM = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.custom_call @"a < b"(%x) {note = "%no // token"} : (tensor<2xf32>) -> tensor<2xf32> // <b>
  return %0 : tensor<2xf32>
}
"""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


class TestTables:
    HEADS = ("kernel", "not a number", "what it does")
    ROWS = (("contraction_0", "-1.234567e-10", "word " * 30), ("row_0", "12", "a" * 90))

    @pytest.mark.parametrize("width", [40, 80])
    def test_fits_the_terminal_and_breaks_no_number(self, width: int) -> None:
        file = Terminal()
        show_table(console(file=file, width=width), self.HEADS, self.ROWS, numbers=("not a number",))
        lines = ESCAPES.sub("", file.getvalue()).splitlines()
        assert max(map(len, lines)) <= width
        assert any(re.search(r" -1\.234567e-10 ", line) for line in lines)
        assert sum(line.count("a") for line in lines[1:]) >= 91  # folded, not cut

    def test_results_of_the_tool_fit_80_columns(self) -> None:
        file = Terminal()
        type_ = TensorType(element_type("f32"), (64, 1024, 1024))
        arrays = [[np.float32([-1.23456789e-10, 3.4e38])]] * 2
        run._show(arrays, Signature("large", (), (type_,), result_names=("['out']",)), console(file=file, width=80))
        lines = ESCAPES.sub("", file.getvalue()).splitlines()
        assert max(map(len, lines)) <= 80
        assert any("-1.23457e-10" in line and "3.4e+38" in line for line in lines)

    def test_plain_where_there_is_no_terminal(self) -> None:
        file = io.StringIO()
        show_table(console(file=file, width=40), self.HEADS, self.ROWS, numbers=("not a number",), title="all")
        lines = file.getvalue().splitlines()
        assert lines[:2] == ["all", "kernel          not a number  what it does"]
        assert lines[3] == f"row_0                     12  {'a' * 90}"

    def test_no_header(self) -> None:
        assert plain_table(("", ""), [("file", "x")]) == ["file  x"]

    def test_cells_are_no_markup(self) -> None:
        file = Terminal()
        show_table(console(file=file, width=40), ("name",), [("[red]:smile: <b>",)])
        assert "[red]:smile: <b>" in file.getvalue()
        assert "&lt;b&gt;" in html_table(["a"], [["<b>"]])


class TestColours:
    def test_tokens_are_the_text(self) -> None:
        assert "".join(piece for _, piece in tokens(PROGRAM)) == PROGRAM
        found = {(kind, piece) for kind, piece in tokens(PROGRAM) if kind}
        assert {("operation", "stablehlo.custom_call"), ("value", "%0"), ("string", '"%no // token"')} <= found
        assert {("type", "2xf32"), ("keyword", "return"), ("symbol", "@main"), ("comment", "// <b>")} <= found

    def test_colours_change_no_character(self) -> None:
        coloured = ansi_text(PROGRAM)
        assert coloured != PROGRAM
        assert ESCAPES.sub("", coloured) == PROGRAM

    def test_html_is_escaped(self) -> None:
        for text in (html_code(PROGRAM), html_tokens(PROGRAM)):
            assert "<b>" not in text
            assert "a &lt; b" in text

    def test_long_programs_are_cut(self) -> None:
        assert "... 7 more lines" in html_code("x\n" * 16, max_lines=10)

    def test_ir(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = PROGRAM.encode()
        assert highlighted(data, io.StringIO()) == data
        assert b"\x1b[" in highlighted(data, Terminal())
        assert highlighted(b"ML\xefR\0", Terminal()) == b"ML\xefR\0"
        monkeypatch.setenv("NO_COLOR", "1")
        assert highlighted(data, Terminal()) == data
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "dumb")
        assert highlighted(data, Terminal()) == data

    def test_errors(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stderr", Terminal())
        print_error("a.mlir:1:2: no error: here")
        print_errors("a.mlir:3: error: unexpected\n", end="")
        red = "\x1b[1;31merror:\x1b[0m"
        assert sys.stderr.getvalue() == f"{red} a.mlir:1:2: no error: here\na.mlir:3: {red} unexpected\n"

    def test_errors_without_colours(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        print_error("what")
        assert capsys.readouterr().err == "error: what\n"
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys, "stderr", Terminal())
        print_error("what")
        assert sys.stderr.getvalue() == "error: what\n"

    def test_no_color_leaves_no_escapes_in_tables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        file = Terminal()
        show_table(console(file=file, width=40), ("name",), [("x",)], title="title")
        assert "\x1b" not in file.getvalue()


def test_the_cache_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "0123.stablexla").write_bytes(b"damaged")
    monkeypatch.setattr(sys, "stdout", Terminal())
    cache._show([("1,234", "2026-01-02 03:04", "net(f32[4]) -> (f32[4])")])
    assert "last used" in ESCAPES.sub("", sys.stdout.getvalue())


def test_stablexla_opt_on_a_terminal(tmp_path: Path) -> None:
    """The same command on a terminal, on one with NO_COLOR, and in a pipe."""
    program = tmp_path / "program.mlir"
    program.write_text(PROGRAM)
    piped = _opt(program, subprocess.PIPE, {})
    assert "\x1b" not in piped
    assert _opt(program, "terminal", {"NO_COLOR": "1"}) == piped
    coloured = _opt(program, "terminal", {})
    assert "\x1b[" in coloured
    assert ESCAPES.sub("", coloured) == piped


def _opt(program: Path, where: object, more: dict[str, str]) -> str:
    command = [sys.executable, "-m", "stablexla.tools.opt", str(program)]
    environment = {**os.environ, **more}
    if where is subprocess.PIPE:
        return subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True).stdout
    reader, writer = pty.openpty()
    with subprocess.Popen(command, stdout=writer, env=environment) as process:
        os.close(writer)
        said = b""
        try:
            while data := os.read(reader, 65536):
                said += data
        except OSError:  # Linux says so at the end
            pass
    os.close(reader)
    assert process.returncode == 0
    return said.decode().replace("\r\n", "\n")
