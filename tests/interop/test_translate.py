"""`stablexla-translate`: what it writes, what it tells, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import stablexla as sx
from stablexla.dialects.builds.stablehlo_version import parts
from stablexla.interop.encodings.file_information import inform
from stablexla.interop.encodings.formats import Format, recognise
from stablexla.interop.encodings.versions import CURRENT, serialise, targets
from stablexla.interop.encodings.writers import write
from stablexla.tools import translate
from tests.interop.test_formats import ARGUMENTS, TEXT

Capture = pytest.CaptureFixture[bytes]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "affine.mlir"
    path.write_text(TEXT)
    return path


class TestConversions:
    @pytest.mark.parametrize(
        ("ending", "form"),
        [
            (".mlir", Format.TEXT),
            (".mlirbc", Format.BYTECODE),
            (".stablehlo", Format.ARTIFACT),
            (".hlo", Format.HLO_TEXT),
            (".hlo.txt", Format.HLO_TEXT),
            (".hlo.pb", Format.HLO_PROTO),
        ],
    )
    def test_there_and_back(self, ending: str, form: Format, program: Path, tmp_path: Path) -> None:
        out, back = tmp_path / f"out{ending}", tmp_path / "back.mlir"
        assert translate.main([str(program), "-o", str(out)]) == 0
        assert recognise(out.read_bytes()) is form
        assert translate.main([str(out), "-o", str(back)]) == 0
        expected = sx.compile(program).execute(list(ARGUMENTS))
        for ours, theirs in zip(sx.compile(back).execute(list(ARGUMENTS)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_hlo_text_of_a_proto_has_all_constants(self, tmp_path: Path, capfdbinary: Capture) -> None:
        b = sx.XlaBuilder("weights")
        proto = tmp_path / "weights.pb"
        proto.write_bytes(write(sx.load(str(b.build(b.constant(np.arange(20.0))))), Format.HLO_PROTO))
        assert translate.main([str(proto), "--to=hlo-text"]) == 0
        text = capfdbinary.readouterr().out.decode()
        assert "17, 18, 19})" in text
        np.testing.assert_array_equal(sx.compile(text)(), np.arange(20.0))

    @pytest.mark.parametrize("name", ["minimum", "week-4", "week-12", "current", "1.3", "0.19.0"])
    def test_target_versions(self, name: str, program: Path, capfdbinary: Capture) -> None:
        assert translate.main([str(program), "--to=artifact", f"--target-version={name}"]) == 0
        found = inform(capfdbinary.readouterr().out, "x")
        assert found.form is Format.ARTIFACT
        assert parts(targets()[0]) <= parts(found.stablehlo) <= parts(CURRENT)
        assert not found.problem

    def test_standard_input(self, program: Path) -> None:
        command = [sys.executable, "-m", "stablexla.tools.translate"]
        made = subprocess.run([*command, "--to=bytecode"], input=program.read_bytes(), capture_output=True)
        assert (made.returncode, made.stderr) == (0, b"")
        back = subprocess.run([*command, "-"], input=made.stdout, capture_output=True)
        assert back.stdout.decode() == str(sx.load(TEXT))

    def test_text(self, program: Path, capfdbinary: Capture) -> None:
        def text(*options: str) -> str:
            assert translate.main([str(program), *options]) == 0
            return capfdbinary.readouterr().out.decode()

        assert '"stablehlo.add"' in text("--mlir-print-op-generic")
        assert f'"{program}":7:10' in text("--mlir-print-debuginfo")
        assert "dense_resource<__elided__>" in text("--mlir-elide-elementsattrs-if-larger=2")
        assert "@main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32>" in text("--entry=squash")

    def test_bytecode_versions(self, program: Path, capfdbinary: Capture) -> None:
        assert translate.main([str(program), "--to=bytecode", "--bytecode-version=1"]) == 0
        assert inform(capfdbinary.readouterr().out, "x").bytecode == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--to=text", "--target-version=1.0.0"], "is for artifacts, not for MLIR text"),
            (["--to=artifact", "--target-version=9.9.9"], "this build writes"),
            (["--to=text", "--bytecode-version=1"], "is for bytecode"),
            (["--to=bytecode", "--bytecode-version=7"], "from 0 to 6"),
            (["--to=text", "--allow-other-dialects"], "is for artifacts"),
            (["-o", "out.unknown"], "its ending tells no form"),
            (["--json"], "--json is for --info"),
            (["--info", "--to=text"], "--info writes nothing"),
        ],
    )
    def test_usage(self, options: list[str], said: str, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert translate.main([str(program), *options]) == 2
        captured = capfd.readouterr()
        assert said in captured.err
        assert captured.out == ""

    def test_input(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert translate.main([str(tmp_path / "nowhere.mlir")]) == 1
        assert "No such file" in capfd.readouterr().err
        path = tmp_path / "cut.mlirbc"
        path.write_bytes(write(sx.load(TEXT), Format.BYTECODE)[:-20])
        assert translate.main([str(path)]) == 1
        assert "cut.mlirbc: damaged bytecode" in capfd.readouterr().err

    def test_what_a_version_lacks(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path, out = tmp_path / "tan.mlir", tmp_path / "tan.stablehlo"
        path.write_text(
            "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
            "  %0 = stablehlo.tan %x : tensor<f32>\n  return %0 : tensor<f32>\n}"
        )
        assert translate.main([str(path), "-o", str(out), "--target-version=minimum"]) == 1
        captured = capfd.readouterr()
        assert "vhlo.tan_v2" in captured.err
        assert "--target-version=1.4.0" in captured.err
        assert not out.exists()

    def test_bytes_are_not_written_to_a_terminal(self, program: Path) -> None:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "stablexla.tools.translate", str(program), "--to=bytecode"]
        done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True)
        os.close(theirs)
        os.close(ours)
        assert done.returncode == 2
        assert "no text for a terminal" in done.stderr

    def test_help_teaches(self, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            translate.main(["--help"])
        assert caught.value.code == 0
        said = capfd.readouterr().out
        assert all(word in said for word in ("examples:", "exit codes:", "week-4", CURRENT, ".stablehlo"))


class TestInfo:
    def test_plain(self, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert translate.main(["--info", str(program)]) == 0
        lines = capfd.readouterr().out.splitlines()
        assert "form                 MLIR text" in lines
        assert (
            "public     @main    (tensor<2x3xf32>, tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2xf32>, tensor<2x3xi1>)"
            in lines
        )
        assert "stablehlo.add               2" in lines

    def test_json(self, program: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert translate.main(["--info", "--json", str(program)]) == 0
        found = json.loads(capfd.readouterr().out)
        assert (found["form"], found["module"], found["problem"]) == ("text", "affine", "")
        assert found["operations"]["stablehlo.add"] == 2
        assert [f["public"] for f in found["functions"]] == [False, True]
        assert found["size"] == len(TEXT)

    def test_table_on_a_terminal(self) -> None:
        out = io.StringIO()
        translate.show(inform(TEXT.encode(), "affine.mlir"), Console(file=out, force_terminal=True, width=100))
        assert "\x1b[1;4moperations" in out.getvalue()
        assert "stablehlo.broadcast_in_dim" in out.getvalue()

    def test_file_that_is_too_new(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "new.stablehlo"
        data = serialise(sx.load(TEXT)).replace(CURRENT.encode(), b"1.99.0")
        path.write_bytes(data.replace(b"multiply_v1", b"multiply_v9"))
        assert translate.main(["--info", str(path)]) == 1
        captured = capfd.readouterr()
        assert "1.99.0 (this build reads" in captured.out
        assert re.search(r"^not known here +vhlo\.multiply_v9$", captured.out, re.MULTILINE)
        assert "vhlo.multiply_v9" in captured.err

    def test_encoding_that_is_too_new(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "new.mlirbc"
        path.write_bytes(b"ML\xefR\x15MLIR99.0.0\0what follows is not known yet")
        assert translate.main(["--info", str(path)]) == 1
        out = capfd.readouterr().out
        assert "version 10" in out
        assert "MLIR99.0.0" in out

    @pytest.mark.parametrize("form", [Format.BYTECODE, Format.ARTIFACT, Format.HLO_PROTO, Format.HLO_TEXT])
    def test_every_form(self, form: Format) -> None:
        found = inform(write(sx.load(TEXT), form), "x")
        assert (found.form, found.module, found.problem) == (form, "affine", "")
        assert found.operations["stablehlo.tanh"] == 1
        assert [f.name for f in found.functions if f.public] == ["main"]

    def test_damaged_files_are_told_of(self) -> None:
        data = write(sx.load(TEXT), Format.BYTECODE)
        for end in range(0, len(data), 7):
            assert inform(data[:end], "x").problem
