"""GPU programs from C: the manifest, and the header's launcher on the simulated driver. Oracle: numpy, and the runtime.

`cuda.h` beside this file stands in for the toolkit's.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.gpu_kernels import gpu_program, write_kernels
from stablexla.compiling.gpu_library import write_library
from stablexla.tools.compile import main
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.programs import PROGRAMS, numbers, program, softmax

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, with which the driver is built")

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
CHIP = "gpu:sm_80"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic", f"-I{HERE}")
WRAPPER = """
#include "model.h"
#include <stdlib.h>
CUresult load(struct model** made, const void* image, const void* constants) {
  *made = malloc(sizeof **made);
  return model_load(*made, image, constants);
}
CUresult run(const struct model* program, CUstream stream, const CUdeviceptr* given, const CUdeviceptr* results) {
  return model_run(program, stream, given, results);
}
CUresult unload(struct model* program) { return model_unload(program); }
"""

Array = np.ndarray[Any, Any]


def written(computation: Any, folder: Path, **options: Any) -> dict[str, Any]:
    """The manifest of a program, whose files are in the folder."""
    write_kernels(sx.compile(computation, target=CHIP), folder / "model.ptx", **options)
    found: dict[str, Any] = json.loads((folder / "model.json").read_text())
    return found


class Launcher:
    """The functions of a header, compiled, for the simulated driver in this process."""

    def __init__(self, folder: Path) -> None:
        source, built = folder / "wrapper.c", folder / "wrapper.so"
        source.write_text(WRAPPER)
        command = ["gcc", "-std=c99", *WARNINGS, "-shared", "-fPIC", source, "-o", built, simulator.library()]
        subprocess.run(command, check=True, timeout=60)
        self.library = ctypes.CDLL(str(built))
        self.manifest = json.loads((folder / "model.json").read_text())
        self.image = (folder / "model.ptx").read_bytes() + b"\0"
        constants = folder / "model.constants"
        self.constants = constants.read_bytes() if constants.exists() else None
        self.program = ctypes.c_void_p()

    def load(self) -> int:
        return int(self.library.load(ctypes.byref(self.program), self.image, self.constants))

    def run(self, arguments: Sequence[int], results: Sequence[int]) -> int:
        given = (ctypes.c_uint64 * max(1, len(arguments)))(*arguments)
        made = (ctypes.c_uint64 * max(1, len(results)))(*results)
        return int(self.library.run(self.program, None, given, made))

    def unload(self) -> int:
        return int(self.library.unload(self.program))


@contextmanager
def driver() -> Iterator[simulator.Session]:
    with simulator.settings(chip=80), simulator.Session() as session:
        yield session


def launched(computation: Any, arrays: Sequence[Array], folder: Path, *, times: int = 1) -> list[Array]:
    """The results of a program that its header launches."""
    written(computation, folder, header_file=folder / "model.h")
    with driver() as session:
        launcher = Launcher(folder)
        before = simulator.allocated_bytes()
        assert launcher.load() == 0, simulator.report()
        given = [session.put(array) for array in arrays]
        rows = launcher.manifest["results"]
        made = [session.allocate(row["bytes"]) for row in rows]
        for _ in range(times):
            assert launcher.run(given, made) == 0, simulator.report()
        results = [
            session.get(address, row["shape"], sx.element_type(row["type"]).dtype)
            for address, row in zip(made, rows, strict=True)
        ]
        assert launcher.unload() == 0
        for address in [*given, *made]:
            session.free(address)
        assert simulator.allocated_bytes() == before
        return results


def scores(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    """Softmax of a product with a constant."""
    return softmax(b, sx.dot(x, b.constant(numbers(48, 96, seed=4))))


def scores_of(x: Array) -> Array:
    product = x.astype(np.float64) @ numbers(48, 96, seed=4).astype(np.float64)
    powers = np.exp(product - product.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)


# A counter of the host, a number that a kernel takes by value, and buffers that change places.
ROUNDS = """func.func @main(%x: tensor<8x16xf32>, %y: tensor<200x16xf32>) -> (tensor<8x16xf32>, tensor<i32>) {
  %start = stablehlo.constant dense<0> : tensor<i32>
  %stop = stablehlo.constant dense<150> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %last:2 = stablehlo.while(%i = %start, %a = %x) : tensor<i32>, tensor<8x16xf32>
  cond {
    %more = stablehlo.compare LT, %i, %stop : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %row = stablehlo.dynamic_slice %y, %i, %start, sizes = [1, 16]
      : (tensor<200x16xf32>, tensor<i32>, tensor<i32>) -> tensor<1x16xf32>
    %flat = stablehlo.reshape %row : (tensor<1x16xf32>) -> tensor<16xf32>
    %rows = stablehlo.broadcast_in_dim %flat, dims = [1] : (tensor<16xf32>) -> tensor<8x16xf32>
    %turned = stablehlo.reverse %a, dims = [0] : tensor<8x16xf32>
    %sum = stablehlo.add %turned, %rows : tensor<8x16xf32>
    %next = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %next, %sum : tensor<i32>, tensor<8x16xf32>
  }
  return %last#1, %last#0 : tensor<8x16xf32>, tensor<i32>
}"""

DONATED = """func.func @main(%x: tensor<40xf32> {tf.aliasing_output = 0 : i32}) -> tensor<40xf32> {
  %0 = stablehlo.add %x, %x : tensor<40xf32>
  return %0 : tensor<40xf32>
}"""


class TestManifest:
    def test_of_one_kernel(self, tmp_path: Path) -> None:
        b = sx.XlaBuilder("twice")
        found = written(b.build(b.parameter(0, sx.f32[4000], name="x") * 2.0), tmp_path)
        (kernel,) = found["kernels"]
        assert kernel == {"name": kernel["name"], "grid": [4, 1, 1], "block": [256, 1, 1], "shared_bytes": 0}
        assert f".entry {kernel['name']}(" in (tmp_path / found["image"]).read_text()
        step = {"step": "launch", "kernel": kernel["name"], "arguments": [{"parameter": 0}, {"result": 0}]}
        assert found["steps"] == [step]
        assert found["parameters"] == [{"name": "x", "type": "f32", "shape": [4000], "bytes": 16000}]
        assert found["results"] == [{"name": "y0", "type": "f32", "shape": [4000], "bytes": 16000}]
        assert found["constants"] == {"file": None, "bytes": 0, "arrays": []}
        assert (found["format"], found["format_version"]) == ("stablexla-gpu-program", 1)
        assert (found["name"], found["chip"], found["arena_bytes"]) == ("model", "sm_80", 0)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["model.json", "model.ptx"]

    def test_of_several_kernels(self, tmp_path: Path) -> None:
        found = written(program(scores, numbers(64, 48)), tmp_path)
        first, second = found["steps"]
        assert first["arguments"] == [{"parameter": 0}, {"constant": 0}, {"arena": 0}]
        assert second["arguments"] == [{"arena": 0}, {"result": 0}]
        assert found["arena_bytes"] == 64 * 96 * 4
        assert [row["name"] for row in found["kernels"]] == [first["kernel"], second["kernel"]]
        assert found["kernels"][0]["shared_bytes"] > 0
        size = 48 * 96 * 4
        arrays = [{"offset": 0, "bytes": size}]
        assert found["constants"] == {"file": "model.constants", "bytes": size, "arrays": arrays}
        assert (tmp_path / "model.constants").read_bytes() == numbers(48, 96, seed=4).tobytes()

    def test_donated_arguments_and_dynamic_sizes(self, tmp_path: Path) -> None:
        b = sx.XlaBuilder("bounded")
        found = written(b.build(b.parameter(0, sx.f32["<=8"], name="x") * 2), tmp_path)
        assert found["parameters"][1]["name"] == "x_size0"
        assert found["parameters"][1]["size_of"] == {"array": 0, "dimension": 0}
        found = written(DONATED, tmp_path, header_file=tmp_path / "model.h")
        assert found["results"][0]["may_be_parameter"] == 0
        assert "but y0 may be x0." in (tmp_path / "model.h").read_text()

    def test_loops_of_the_host_are_carried_out(self, tmp_path: Path) -> None:
        found = written(ROUNDS, tmp_path)
        numbers = [
            int.from_bytes(bytes.fromhex(argument["data"]), "little")
            for step in found["steps"]
            for argument in step.get("arguments", ())
            if "scalar" in argument
        ]
        assert numbers == list(range(150))


class TestLauncher:
    def test_softmax_of_a_product(self, tmp_path: Path) -> None:
        x = numbers(64, 48)
        (found,) = launched(program(scores, x), [x], tmp_path, times=2)
        np.testing.assert_allclose(found, scores_of(x), rtol=1e-5, atol=1e-6)

    def test_loops(self, tmp_path: Path) -> None:
        x, y = numbers(8, 16), numbers(200, 16, seed=1)
        found, count = launched(ROUNDS, [x, y], tmp_path)
        for row in y[:150]:
            x = x[::-1] + row
        assert count == 150
        np.testing.assert_array_equal(found, x)

    @pytest.mark.parametrize("name", ["elementwise", "argmax", "everything-in-parts", "sort", "dot-bf16"])
    def test_as_the_runtime(self, name: str, tmp_path: Path) -> None:
        make, arrays = PROGRAMS[name]
        found = launched(program(make, *arrays), arrays, tmp_path)
        with simulator.settings(chip=80), simulator.in_runtime():
            wanted = sx.compile(program(make, *arrays), target=CHIP).execute(list(arrays))
        for actual, want in zip(found, wanted, strict=True):
            assert actual.tobytes() == np.asarray(want).tobytes()

    def test_a_result_in_the_memory_of_its_argument(self, tmp_path: Path) -> None:
        written(DONATED, tmp_path, header_file=tmp_path / "model.h")
        x = numbers(40)
        with driver() as session:
            launcher = Launcher(tmp_path)
            assert launcher.load() == 0
            address = session.put(x)
            assert launcher.run([address], [address]) == 0, simulator.report()
            found = session.get(address, x.shape, x.dtype)
            launcher.unload()
        np.testing.assert_array_equal(found, x + x)

    def test_programs_without_kernels(self, tmp_path: Path) -> None:
        x = numbers(40)
        (found,) = launched(program(lambda b, x: x, x), [x], tmp_path)
        np.testing.assert_array_equal(found, x)

    def test_scalar_and_empty_arrays(self, tmp_path: Path) -> None:
        x, empty = np.float32([3]), np.zeros((0, 4), np.float32)
        found = launched(program(lambda b, x, y: [x * 2.0, y + 1.0], x, empty), [x, empty], tmp_path)
        assert found[0].tolist() == [6]

    def test_what_fails_is_given_back(self, tmp_path: Path) -> None:
        x = numbers(64, 48)
        written(program(scores, x), tmp_path, header_file=tmp_path / "model.h")
        with driver() as session:
            launcher = Launcher(tmp_path)
            before = simulator.allocated_bytes()
            for function, nth in (
                ("cuModuleLoadDataEx", 1),
                ("cuModuleGetFunction", 2),
                ("cuFuncSetAttribute", 1),
                ("cuMemAlloc_v2", 1),
                ("cuMemAlloc_v2", 2),
                ("cuMemcpyHtoDAsync_v2", 1),
            ):
                simulator.fail(function, nth, 2)
                assert launcher.load() == 2
                assert simulator.allocated_bytes() == before
            assert launcher.load() == 0
            given, made = session.put(x), session.allocate(64 * 96 * 4)
            assert launcher.run([given + 4], [made]) == 1
            assert launcher.run([given], [0]) == 1
            simulator.fail("cuLaunchKernel", 2, 2)
            assert launcher.run([given], [made]) == 2
            launcher.unload()

    def test_in_cpp(self, tmp_path: Path) -> None:
        written(ROUNDS, tmp_path, header_file=tmp_path / "rounds.h", name="rounds")
        (tmp_path / "b.cpp").write_text('#include "rounds.h"\n#include "rounds.h"\nauto run = rounds_run;\n')
        subprocess.run(["g++", *WARNINGS, "-c", tmp_path / "b.cpp", "-o", tmp_path / "b.o"], check=True, timeout=60)

    def test_the_pages_program(self, tmp_path: Path) -> None:
        """The example of docs/gpu_from_c.md, from the command line on."""
        page = (ROOT / "docs/gpu_from_c.md").read_text()
        code, _ = re.findall(r"^```c\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        (tmp_path / "program.c").write_text(code)
        b = sx.XlaBuilder("model")
        computation = b.build(scores(b, b.parameter(0, sx.f32[4, 48], name="x")))
        (tmp_path / "model.mlir").write_text(computation.text())
        wanted = scores_of((np.arange(4 * 48, dtype=np.float32) / 100).reshape(4, 48))
        names = [str(tmp_path / name) for name in ("model.mlir", "model.ptx", "model.h")]
        assert main([names[0], "-o", names[1], "--target", CHIP, "--header", names[2]]) == 0
        command = ["gcc", "-std=c99", *WARNINGS, "program.c", "-o", "program", simulator.library()]
        subprocess.run(command, check=True, timeout=60, cwd=tmp_path)
        ran = subprocess.run(["./program"], check=True, timeout=60, cwd=tmp_path, capture_output=True, text=True)
        found = np.array(ran.stdout.split(), np.float32).reshape(4, 96)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


class TestLibrary:
    def test_the_pages_program(self, tmp_path: Path) -> None:
        """The second example of docs/gpu_from_c.md."""
        page = (ROOT / "docs/gpu_from_c.md").read_text()
        _, code = re.findall(r"^```c\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        b = sx.XlaBuilder("model")
        computation = b.build(scores(b, b.parameter(0, sx.f32[4, 48], name="x")))
        (tmp_path / "model.mlir").write_text(computation.text())
        (tmp_path / "program.c").write_text(code)
        source, library, header = (str(tmp_path / name) for name in ("model.mlir", "libmodel.so", "model.h"))
        assert main([source, "-o", library, "--target", CHIP, "--header", header]) == 0
        assert sorted(file.name for file in tmp_path.iterdir()) == ["libmodel.so", "model.h", "model.mlir", "program.c"]
        command = ["gcc", "-std=c99", *WARNINGS, "program.c", "-o", "program", "./libmodel.so", simulator.library()]
        subprocess.run(command, check=True, timeout=60, cwd=tmp_path)
        ran = subprocess.run(["./program"], timeout=60, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout
        wanted = scores_of((np.arange(4 * 48, dtype=np.float32) / 100).reshape(4, 48))
        np.testing.assert_allclose(
            np.array(ran.stdout.split(), np.float32).reshape(4, 96), wanted, rtol=1e-4, atol=1e-6
        )

    def test_only_its_functions_are_exported(self, tmp_path: Path) -> None:
        make, arrays = PROGRAMS["elementwise"]
        write_library(sx.compile(program(make, *arrays), target=CHIP), tmp_path / "libsum.so")
        listed = subprocess.run(["nm", "-D", tmp_path / "libsum.so"], capture_output=True, text=True, check=True).stdout
        functions = {line.split()[-1] for line in listed.splitlines() if " T " in line}
        assert functions == {"sum_load", "sum_run", "sum_unload"}
        assert all(name.startswith("cu") for name in re.findall(r" U (\w+)$", listed, re.MULTILINE) if "@" not in name)

    @pytest.mark.parametrize("name", ["launched", "launcher"])
    def test_names_of_the_launchers_own(self, name: str, tmp_path: Path) -> None:
        make, arrays = PROGRAMS["elementwise"]
        write_library(sx.compile(program(make, *arrays), target=CHIP), tmp_path / "l.so", name=name)
        assert hasattr(ctypes.CDLL(str(tmp_path / "l.so"), mode=os.RTLD_LAZY), f"{name}_run")

    def test_headers_in_cpp(self, tmp_path: Path) -> None:
        executable = sx.compile(ROUNDS, target=CHIP)
        write_library(executable, tmp_path / "librounds.so", header_file=tmp_path / "rounds.h")
        (tmp_path / "b.cpp").write_text('#include "rounds.h"\n#include "rounds.h"\nauto run = rounds_run;\n')
        subprocess.run(["g++", *WARNINGS, "-c", tmp_path / "b.cpp", "-o", tmp_path / "b.o"], check=True, timeout=60)

    def test_what_has_no_launcher(self, tmp_path: Path) -> None:
        make, arrays = PROGRAMS["while"]
        with pytest.raises(sx.CompileError, match=r"nothing in C can launch the program: scf.while") as raised:
            write_library(sx.compile(program(make, *arrays), target=CHIP), tmp_path / "libloop.so")
        assert "-o libloop.ptx without the header" in raised.value.hint
        assert not list(tmp_path.iterdir())

    def test_no_compiler(self, tmp_path: Path) -> None:
        make, arrays = PROGRAMS["elementwise"]
        with pytest.raises(sx.CompileError, match="nowhere/cc cannot be run"):
            write_library(sx.compile(program(make, *arrays), target=CHIP), tmp_path / "l.so", linker="nowhere/cc")


class TestRefused:
    def refused(self, computation: Any, folder: Path, said: str) -> dict[str, Any]:
        """No header is written, and the manifest has no steps."""
        with pytest.raises(sx.CompileError, match=said) as raised:
            written(computation, folder, header_file=folder / "model.h")
        assert "model.json describes the kernels" in raised.value.hint
        assert not list(folder.iterdir())
        found = written(computation, folder)
        assert found["steps"] is None
        assert found["kernels"]
        obstacle: dict[str, Any] = found["obstacle"]
        return obstacle

    def test_loops_of_the_device(self, tmp_path: Path) -> None:
        make, arrays = PROGRAMS["while"]
        obstacle = self.refused(
            program(make, *arrays), tmp_path, r"nothing in C .*: scf.while: the loop's condition .* \(at .*\.py:\d+\)"
        )
        assert obstacle["operation"] == "scf.while"
        assert re.search(r"programs\.py:\d+$", obstacle["location"])

    @pytest.mark.filterwarnings("ignore:.*run on the host")
    def test_calls_of_the_host(self, tmp_path: Path) -> None:
        def drawn(b: sx.XlaBuilder) -> sx.XlaOp:
            return sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[64])

        obstacle = self.refused(program(drawn), tmp_path, "random_key: runs on the host, not on the GPU")
        assert obstacle["message"] == "runs on the host, not on the GPU"

    def test_endless_loops(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("stablexla.targets.gpu.launch.main_to_steps.LONGEST", 100)
        self.refused(ROUNDS, tmp_path, "more than 100 steps")

    @pytest.mark.filterwarnings("ignore:.*run on the host")
    def test_several_devices(self, tmp_path: Path) -> None:
        b = sx.XlaBuilder("sum")
        computation = b.build(sx.all_reduce(b.parameter(0, sx.f32[4]), sx.add))
        executable = sx.compile(computation, target=CHIP, num_replicas=2)
        with pytest.raises(sx.CompileError, match="the program is for 2 devices"):
            write_kernels(executable, tmp_path / "model.ptx", header_file=tmp_path / "model.h")

    def test_other_targets(self, tmp_path: Path) -> None:
        with pytest.raises(sx.CompileError, match="the pipeline has no step ptx"):
            gpu_program(sx.compile(program(lambda b, x: x + 1.0, numbers(4))))

    @pytest.mark.parametrize("option", ["--emit=object", "--link-arg=-lm", "--target-cpu=x86-64-v3"])
    def test_options_of_the_cpu(self, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            main(["model.mlir", "-o", str(tmp_path / "model.ptx"), "--target", CHIP, option])
        assert f"{option.partition('=')[0]} is for" in capsys.readouterr().err
