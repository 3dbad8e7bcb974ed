"""`stablexla-run` on several devices: inputs, what it shows and writes for each, and the devices as processes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stablexla.tools import run
from stablexla.tools.running.launching import _told

PROGRAM = """module @sum {
  func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<ui32>) {
    %0 = "stablehlo.all_reduce"(%x) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    %r = stablehlo.replica_id : tensor<ui32>
    return %0, %r : tensor<2xf32>, tensor<ui32>
  }
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "sum.mlir"
    path.write_text(PROGRAM)
    return str(path)


def test_a_table_with_all_devices(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.main([program, "--replicas", "3", "--input", "[{device}, 1]"]) == 0
    out = capfd.readouterr().out
    assert "device" in out
    rows = [re.findall(r"[\w.\[\]]+", line) for line in out.splitlines() if "f32[2]" in line]
    assert rows == [[str(device), "0", "f32[2]", "3", "3", "3", "0"] for device in range(3)]


def test_results_in_full_and_in_files(program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for device in range(4):
        np.save(tmp_path / f"x{device}.npy", np.full(2, 10**device, np.float32))
    out = tmp_path / "out"
    given = [program, "--replicas=2", "--partitions=2", "--input", f"{tmp_path}/x{{device}}.npy"]
    assert run.main([*given, "--print", "--output-dir", str(out), "--time", "2"]) == 0
    printed = capfd.readouterr().out
    assert "device 0, result 0: f32[2]\n[101. 101.]\n" in printed
    assert "device 3, result 1: u32[]\n1\n" in printed
    assert "median call" in printed
    for device in range(4):
        np.testing.assert_array_equal(
            np.load(out / f"device{device}" / "result0.npy"), [[101] * 2, [1010] * 2][device % 2]
        )


def test_all_inputs_in_a_file_for_each_device(program: str, tmp_path: Path) -> None:
    for device in range(2):
        np.savez(tmp_path / f"in{device}.npz", x=np.full(2, device + 1, np.float32))
    given = ["--replicas=2", "--inputs", f"{tmp_path}/in{{device}}.npz", "--output-dir", str(tmp_path / "out")]
    assert run.main([program, *given]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "device1" / "result0.npy"), [3, 3])


def test_random_inputs_are_the_same_or_not(program: str, tmp_path: Path) -> None:
    def made(*given: str) -> np.ndarray:
        assert run.main([program, "--replicas=2", "--output-dir", str(tmp_path / "out"), *given]) == 0
        result: np.ndarray = np.load(tmp_path / "out" / "device0" / "result0.npy")
        return result

    assert run.main([program, "--input=random:0", "--output-dir", str(tmp_path / "alone")]) == 0
    alone = np.load(tmp_path / "alone" / "result0.npy")
    np.testing.assert_array_equal(made(), 2 * alone)
    assert (made("--input=random:{device}") != 2 * alone).all()


def test_open_shapes_come_from_the_first_device(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "open.mlir"
    path.write_text(PROGRAM.replace("tensor<2xf32>", "tensor<?xf32>"))
    for device in range(2):
        np.save(tmp_path / f"x{device}.npy", np.ones(5, np.float32))
    assert run.main([str(path), "--replicas=2", "--input", f"{tmp_path}/x{{device}}.npy"]) == 0
    assert "f32[5]" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--replicas=2", "--input", "x{device}.npy"], "parameter 0: x0.npy cannot be read"),
        (["--replicas=2", "--compare=xla"], "a program for 2 devices is not compared"),
        (["--launcher=mpi", "--replicas=2", "--profile"], "--profile is for one process"),
        (["--launcher=mpi", "--replicas=3", "--processes=2"], "3 devices cannot be shared equally by 2 processes"),
    ],
)
def test_errors(given: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.main([program, *given]) == 1
    assert message in capfd.readouterr().err


@pytest.mark.parametrize(
    "given", [["--replicas=0"], ["--partitions=x"], ["--launcher=ssh"], ["--collective-timeout=0"], ["--processes=2"]]
)
def test_wrong_usage(given: list[str], program: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main([program, *given])
    assert ended.value.code == 2
    assert given[0].split("=")[0] in capfd.readouterr().err


def test_explaining_needs_no_devices(program: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run.main([program, "--replicas=2", "--explain"]) == 0
    assert "all_reduce" in capfd.readouterr().out


# ---- processes -------------------------------------------------------------------------------------------------------


def test_what_processes_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for rank in range(3):
        (tmp_path / f"code{rank}").write_text("1")
        (tmp_path / f"said{rank}").write_text("error: all the same\n")
    assert _told(tmp_path, 3, 0, "noise\n") == 1
    assert capfd.readouterr().err == "error: all the same\n"
    (tmp_path / "said1").write_text("error: another\n")
    assert _told(tmp_path, 3, 0, "noise\n") == 1
    assert capfd.readouterr().err == "process 0, 2: error: all the same\nprocess 1: error: another\n"
    (tmp_path / "code2").unlink()
    (tmp_path / "said2").unlink()
    (tmp_path / "code0").write_text("0")
    assert _told(tmp_path, 3, 9, "noise\n") == 1
    err = capfd.readouterr().err
    assert "noise\n" in err
    assert "error: process 2 ended before it was done" in err


mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed")


def launched(*given: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stablexla.tools.run", *given]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=100, check=False)


@mpi
def test_devices_in_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The program comes from standard input, and each of the two processes has two devices."""
    given = ["--replicas=4", "--input=[{device}, 1]", "--print", "--output-dir"]
    apart = launched("-", *given, str(tmp_path / "apart"), "--launcher=mpi", "--processes=2", text=PROGRAM)
    (tmp_path / "sum.mlir").write_text(PROGRAM)
    assert run.main([str(tmp_path / "sum.mlir"), *given, str(tmp_path / "here")]) == 0
    assert (apart.returncode, apart.stdout, apart.stderr) == (0, capfd.readouterr().out, "")
    for name in ("device0/result0.npy", "device3/result1.npy"):
        np.testing.assert_array_equal(np.load(tmp_path / "apart" / name), np.load(tmp_path / "here" / name))


@mpi
def test_an_error_of_all_processes_is_told_once(program: str) -> None:
    made = launched(program, "--replicas=2", "--input=missing.npy", "--launcher=mpi")
    assert made.returncode == 1
    assert made.stderr.count("missing.npy cannot be read") == 1
