"""Files that are damaged, empty, huge or something else: each tool says so in a line, and none shows a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from stablexla.interop.encodings.formats import Format
from stablexla.interop.encodings.writers import write
from stablexla.tools import compile as compile_tool
from stablexla.tools import opt, run, translate

Tool = Callable[[Sequence[str]], int]
TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }"
HUGE = """func.func @main(%x: tensor<24000000000000xf32>) -> tensor<f32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  return %c : tensor<f32>
}"""
TOOLS: dict[str, Tool] = {
    "run": run.main,
    "opt": opt.main,
    "translate": translate.main,
    "info": lambda given: translate.main(["--info", *given]),
    "compile": lambda given: compile_tool.main([*given, "-o", "out.o"]),
}


def exported() -> bytes:
    import jax
    from jax import export

    return bytes(export.export(jax.jit(lambda x: x + 1))(jax.ShapeDtypeStruct((2,), np.float32)).serialize())


def saved() -> bytes:
    path = Path("whole.sxe")
    sx.compile(TEXT).save(path)
    return path.read_bytes()


WHOLE: dict[str, Callable[[], bytes]] = {
    "bytecode": lambda: write(sx.load(TEXT), Format.BYTECODE),
    "artifact": lambda: write(sx.load(TEXT), Format.ARTIFACT),
    "hlo": lambda: write(sx.load(TEXT), Format.HLO_PROTO),
    "text": lambda: TEXT.encode(),
    "exported": exported,
    "saved": saved,
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def complaint(tool: Tool, given: Sequence[str], capfd: pytest.CaptureFixture[str]) -> str:
    """What a tool says, which ends with 1; an exception that leaves it would be a traceback."""
    assert tool(given) == 1
    said = capfd.readouterr().err
    assert said.startswith("error: ")
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("form", WHOLE)
@pytest.mark.parametrize("name", TOOLS)
def test_programs_that_were_cut(name: str, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    data = WHOLE[form]()
    capfd.readouterr()
    for end in (len(data) // 4, len(data) // 2, len(data) - 5):
        Path("cut").write_bytes(data[:end])
        complaint(TOOLS[name], ["cut"], capfd)


@pytest.mark.parametrize("name", TOOLS)
def test_files_that_are_no_programs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    np.savez("arrays.npz", np.ones(3))
    for file, data in {"empty": b"", "zeros": bytes(100), "bytes": bytes(range(256)) * 4, "latin": b"caf\xe9"}.items():
        Path(file).write_bytes(data)
        if not (name in ("opt", "translate", "info") and file in ("empty", "zeros")):  # an empty module
            complaint(TOOLS[name], [file], capfd)
    for file in ("folder", "missing", "arrays.npz"):
        complaint(TOOLS[name], [file], capfd)


def test_damaged_arrays(capfd: pytest.CaptureFixture[str]) -> None:
    Path("m.mlir").write_text(TEXT)
    np.save("x.npy", np.ones(2, np.float32))
    np.savez("x.npz", np.ones(2, np.float32))
    one, several = Path("x.npy").read_bytes(), Path("x.npz").read_bytes()
    huge = one.replace(b"(2,)", b"(123456789012345678,)").replace(b" " * 17, b"", 1)
    damaged = {
        "cut": one[:-3],
        "head": one[:20],
        "empty": b"",
        "huge": huge,
        "negative": one.replace(b"(2,)", b"(-2,)").replace(b"}  ", b"} ", 1),
        "objects": one.replace(b"'<f4'", b"'|O' "),
        "text": b"not an array",
    }
    for name, data in damaged.items():
        Path(f"{name}.npy").write_bytes(data)
        said = complaint(run.main, ["m.mlir", f"--input={name}.npy"], capfd)
        assert f"parameter 0: {name}.npy cannot be read as an .npy file: " in said
    flipped = several.replace(b"\x93NUMPY", b"\x93NUMPX")
    for name, data in {"cut": several[: len(several) // 2], "empty": b"", "flipped": flipped, "text": b"no"}.items():
        Path(f"{name}.npz").write_bytes(data)
        said = complaint(run.main, ["m.mlir", f"--inputs={name}.npz"], capfd)
        assert f"{name}.npz cannot be read as an .npz file: " in said
    Path("wrong.npy").write_bytes(several)
    assert "try: --inputs wrong.npy" in complaint(run.main, ["m.mlir", "--input=wrong.npy"], capfd)
    assert "try: --input x.npy" in complaint(run.main, ["m.mlir", "--inputs=x.npy"], capfd)


@pytest.mark.parametrize("spec", ["random", "zeros", "ones", "iota", "1.5"])
def test_parameters_beyond_all_memory(spec: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("huge.mlir").write_text(HUGE)
    said = complaint(run.main, ["huge.mlir", f"--input={spec}"], capfd)
    assert "no memory for parameter 0: 96000000000000 bytes were asked for" in said


def test_an_exported_file_that_was_cut_says_where_it_ends(capfd: pytest.CaptureFixture[str]) -> None:
    data = exported()
    assert sx.load(data)
    for end in (len(data) * 2 // 3, len(data) - 50):
        with pytest.raises(sx.ParseError, match=rf"a file of jax\.export that was cut, or is damaged: .* byte {end}$"):
            sx.load(data[:end])


@pytest.mark.parametrize("name", ["opt", "translate", "compile"])
def test_a_saved_executable_is_called_one(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    sx.compile(TEXT).save("saved.sxe")
    said = complaint(TOOLS[name], ["saved.sxe"], capfd)
    assert "error: saved.sxe: this is a saved executable: machine code, and no program to compile\n" in said
    assert "try: stablexla-run FILE" in said
    with pytest.raises(sx.ParseError, match=r"saved executable(?s:.)*sx\.load_executable"):
        sx.load(Path("saved.sxe"))


class TestControlCharacters:
    """Text of a file that would clear the terminal of who reads a message about it."""

    CLEAR = r"\1B[2J"
    NEGATE = (
        "(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.negate %x : tensor<2xf32>\n return %0 : tensor<2xf32> }"
    )

    @pytest.mark.parametrize(
        ("text", "options", "code"),
        [
            (f'module @"a{CLEAR}" {{ func.func @"f{CLEAR}"{NEGATE} }}', [], 1),
            (f'module @"a{CLEAR}" {{ func.func @main{NEGATE} }}', ["--input=ones", "--explain"], 0),
            (f'module @"a{CLEAR}" {{ func.func @main{NEGATE} }}', ["--input=ones", "--profile=1"], 0),
            (f'module @"a{CLEAR}" {{ func.func @main{NEGATE} }}', ["--input=ones", "--check"], 0),
            (f'module @"a{CLEAR}" {{ func.func @main{NEGATE} }}', ["--input=ones", "--compare=plain"], 0),
            (f'module @"a{CLEAR}" {{ func.func @main{NEGATE} }}', ["--input=[1, 2, 3]"], 1),
        ],
    )
    def test_names(self, text: str, options: list[str], code: int, capfd: pytest.CaptureFixture[str]) -> None:
        Path("m.mlir").write_text(text)
        assert run.main(["m.mlir", *options]) == code
        assert "\x1b" not in "".join(capfd.readouterr())
        assert translate.main(["m.mlir", "--info"]) == 0
        out = capfd.readouterr().out
        assert "\x1b" not in out
        assert r"a\x1b[2J" in out

    def test_producers_targets_and_files(self, capfd: pytest.CaptureFixture[str]) -> None:
        data = write(sx.load(TEXT), Format.BYTECODE).replace(b"MLIR2", b"\x1b[2J2", 1)
        Path("a\x1b[2J.mlirbc").write_bytes(data[:-9])
        assert "\x1b" not in complaint(run.main, ["a\x1b[2J.mlirbc"], capfd)
        assert translate.main(["a\x1b[2J.mlirbc", "--info"]) == 1
        assert "\x1b" not in "".join(capfd.readouterr())
        call = '"stablehlo.custom_call"(%x) {call_target_name = "\\1B[2J"} : (tensor<2xf32>) -> tensor<2xf32>'
        Path("call.mlir").write_text(TEXT.replace("return %x", f"%0 = {call}\n return %0"))
        assert r"no target '\x1b[2J'" in complaint(run.main, ["call.mlir"], capfd)

    def test_errors_and_reports_of_the_api(self) -> None:
        error = sx.ShapeError("a\x1b[2J\u202eb\x9b", operands={"x\x07": "y"}, hint="z\x00\tw")
        assert str(error) == "a\\x1b[2J\\u202eb\\x9b\n  x\\x07  y\n  try: z\\x00\tw"


LIMITED = """
import resource, sys
from stablexla.tools import run
show = run._show
def limited(*given):
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20), resource.RLIM_INFINITY))
    show(*given)
run._show = limited
sys.exit(run.main(["large.mlir"]))
"""
"""Runs a program, and limits the address space (`ulimit -v`) before the summary of its result."""


# With nothing at all left, the C library ends the process when it first needs a thread's variables of a library.
@pytest.mark.parametrize("mebibytes", [1, 64])
def test_the_summary_of_a_result_without_memory(mebibytes: int) -> None:
    """It takes no copy of 48 MiB of bytes as f64, which are 384; where not even 2 MiB are left, a line says so."""
    count = 48 << 20
    body = f"%0 = stablehlo.iota dim = 0 : tensor<{count}xi8> return %0 : tensor<{count}xi8>"
    Path("large.mlir").write_text(f"func.func @main() -> tensor<{count}xi8> {{ {body} }}")
    command = [sys.executable, "-c", LIMITED, str(mebibytes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    if mebibytes > 1:
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[1].split() == ["0", f"s8[{count}]", "-128", "-0.5", "127", "0"]
    else:
        assert done.returncode == 1
        assert done.stderr.startswith("error: there is no memory left: Unable to allocate ")
        assert len(done.stderr.splitlines()) == 1


def test_summaries_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "BLOCK", 3)
    nan = np.nan
    for values, cells in (
        ([1.0, nan, 3.0, nan, nan, nan, -4.0], ["-4", "0", "3", "4"]),
        ([nan, nan, nan, nan], ["", "", "", "4"]),
        ([], ["", "", "", "0"]),
        ([np.inf, 1.0, 2.0, 3.0], ["1", "inf", "inf", "0"]),
    ):
        assert run._statistics(np.array(values, np.float32), element_type("f32")) == cells
    assert run._statistics(np.array([[3 + 4j, 0], [1j, 2]], np.complex64), element_type("c64")) == ["0", "2", "5", "0"]
