"""`libstablexla_pjrt.so` in processes without Python: the example in C, saved programs, what is wrong with either."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.pjrt.__main__ import library, main
from stablexla.targets.runtime import container
from tests.aot.test_library import WARNINGS

EXAMPLES = Path(__file__).parents[3] / "examples" / "pjrt"
KEPT = {name: os.environ[name] for name in ("TMPDIR", "HOME") if name in os.environ}
NO_PYTHON = {"STABLEXLA_PYTHON": "/nowhere/python"}
DOUBLE = """func.func public @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<f32>) {
  %0 = stablehlo.add %x, %x : tensor<2x3xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
  return %0, %1 : tensor<2x3xf32>, tensor<f32>
}"""
DOUBLED = "result 0: f32[2,3] 0 0.333333 0.666667 1 1.33333 1.66667\nresult 1: f32[] 5\n"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("pjrt") / "run"
    command = ["gcc", "-std=c11", *WARNINGS, str(EXAMPLES / "run.c"), "-o", str(output), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    return output


def run(example: Path, program: Path, *shapes: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the example; it needs nothing of this process's environment but where temporary files go."""
    command = [example, library(), program, *shapes]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={"PATH": "/usr/bin:/bin", **KEPT, **environment}
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pjrt") / "double.mlir"
    file.write_text(DOUBLE)
    return file


@pytest.fixture(scope="module")
def saved(source: Path) -> Path:
    file = source.with_suffix(".sxe")
    sx.compile(source).save(file)
    return file


def test_a_program_in_c_compiles_and_runs(example: Path, source: Path) -> None:
    for given in ({}, {"STABLEXLA_PYTHON": sys.executable}):
        done = run(example, source, "2x3", **given)
        assert (done.stdout, done.stderr, done.returncode) == (DOUBLED, "", 0)


def test_what_jax_serialized_takes_no_python(example: Path, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    script = """
import jax, jax.numpy as jnp, sys
from pathlib import Path
function = jax.jit(lambda x, y: (x * 2 + y, y.sum()), donate_argnums=0)
made = function.lower(jnp.zeros((2, 3)), jnp.zeros(3)).compile().runtime_executable()
Path(sys.argv[1]).write_bytes(made.serialize())
"""
    file = tmp_path / "jax.sxe"
    environment = {**os.environ, "JAX_PLATFORMS": "stablexla"}
    subprocess.run([sys.executable, "-c", script, file], check=True, timeout=120, env=environment)
    done = run(example, file, "2x3", "3", **NO_PYTHON)
    assert (done.stdout, done.stderr) == (
        "result 0: f32[2,3] 0 0.666667 1.33333 1 1.66667 2.33333\nresult 1: f32[] 1\n",
        "",
    )


def test_a_library_in_a_folder_that_python_does_not_know(example: Path, source: Path, tmp_path: Path) -> None:
    """As `pip install --target` makes it: the package beside the library is found, by the Python on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python3").chmod(0o755)
    folder = tmp_path / "elsewhere" / "stablexla" / "targets" / "runtime"
    folder.mkdir(parents=True)
    shutil.copy(library(), folder)
    done = subprocess.run(
        [example, folder / library().name, source, "2x3"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**KEPT, "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"},
    )
    assert (done.stdout, done.stderr) == (DOUBLED, "")


def test_compiling_takes_no_jax(source: Path) -> None:
    """The compiling process imports jaxlib alone, as an installation without extras has it."""
    script = """
import sys
sys.modules["jax"] = None
import stablexla.pjrt.serving
from stablexla.pjrt import compiling
print(len(compiling.saved(*compiling.compiled_for_others(open(sys.argv[1], "rb").read(), "mlir", b"", 1))))
"""
    done = subprocess.run([sys.executable, "-c", script, source], capture_output=True, text=True, timeout=60)
    assert int(done.stdout) > 0, done.stderr


def test_saved_programs_take_no_python(example: Path, saved: Path) -> None:
    done = run(example, saved, "2x3", **NO_PYTHON)
    assert (done.stdout, done.stderr, done.returncode) == (DOUBLED, "", 0)


def test_saved_programs_of_several_devices_take_no_python(example: Path, tmp_path: Path) -> None:
    b = sx.XlaBuilder("sums")
    x = b.parameter(0, sx.f32[4], "x") + sx.convert_element_type(b.replica_id(), "f32")
    computation = b.build(sx.tuple([sx.all_reduce(x, sx.add), x]))
    sx.compile(computation, num_replicas=3).save(tmp_path / "sums.sxe")
    done = run(example, tmp_path / "sums.sxe", "4", **NO_PYTHON, STABLEXLA_NUM_DEVICES="4")
    rows = "".join(
        f"device {d}\nresult 0: f32[4] 3 3.75 4.5 5.25\nresult 1: f32[4] {d} {d}.25 {d}.5 {d}.75\n" for d in range(3)
    )
    assert (done.stdout, done.stderr, done.returncode) == (rows, "", 0)
    done = run(example, tmp_path / "sums.sxe", "4", **NO_PYTHON, STABLEXLA_NUM_DEVICES="2")
    assert (done.stderr, done.returncode) == (
        "error: a saved program cannot run here: it is for device 2, where there are 2; STABLEXLA_NUM_DEVICES says how "
        "many\n",
        1,
    )


@pytest.mark.skipif(shutil.which("rustc") is None, reason="no rustc")
def test_the_same_program_in_rust(tmp_path: Path, saved: Path) -> None:
    built = tmp_path / "run"
    subprocess.run(["rustc", "-O", EXAMPLES / "run.rs", "-o", built], check=True, timeout=120, cwd=tmp_path)
    done = run(built, saved, "2x3", **NO_PYTHON)
    assert done.stdout.splitlines()[1] == "result 1: f32[] [5.0]"
    done = run(built, saved, "2x2", **NO_PYTHON)
    assert (done.stderr, done.returncode) == ("error: main: argument 0: f32[2,2] given, f32[2,3] needed\n", 1)


def test_a_simulation_in_cpp_with_a_potential_of_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    built, potential = tmp_path / "particles", tmp_path / "potential.bin"
    # but -pedantic, to which the table's array of no size in pjrt.h is C's alone
    command = ["g++", "-std=c++17", *WARNINGS[:-1], EXAMPLES / "particles.cpp", "-o", built, "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    subprocess.run([sys.executable, EXAMPLES / "make_potential.py", potential], check=True, timeout=120)
    lines = run(built, potential, "500").stdout.splitlines()
    potentials, totals = zip(*((float(line.split()[3]), float(line.split()[5])) for line in lines), strict=True)
    assert len(lines) == 6
    # the energy of the lattice, by the sums over pairs in double precision
    places = np.array([(i % 4, i // 4 % 4, i // 16) for i in range(64)]) * float(np.float32(1.1225))
    places.reshape(-1)[::7] += 0.05
    apart = ((places[:, None] - places[None]) ** 2).sum(-1)[np.triu_indices(64, 1)]
    np.testing.assert_allclose(potentials[0], (4 * (apart**-6 - apart**-3)).sum(), rtol=1e-6)
    assert potentials[-1] < potentials[0] - 10  # it moves
    np.testing.assert_allclose(totals, totals[0], rtol=1e-4)  # and keeps its energy


def test_the_library_needs_nothing_of_python() -> None:
    needed = subprocess.run(["nm", "-D", "--undefined-only", library()], capture_output=True, text=True, check=True)
    assert "dlopen" in needed.stdout
    assert not [name for name in needed.stdout.split() if name.startswith(("Py", "_Py"))]


@pytest.mark.parametrize(
    ("shapes", "environment", "said"),
    [
        (["2x2"], {}, "error: main: argument 0: f32[2,2] given, f32[2,3] needed\n"),
        (["2x3", "1"], {}, "error: main: 2 arguments, where it takes 1\n"),
        (
            ["2x3"],
            NO_PYTHON,
            "error: compiling needs Python with stablexla, and /nowhere/python cannot be started (No such file or "
            "directory); STABLEXLA_PYTHON names another\n",
        ),
        (
            ["2x3"],
            {"STABLEXLA_PYTHON": "/bin/false"},
            "error: compiling needs Python with stablexla, and /bin/false ended with the code 1; STABLEXLA_PYTHON "
            "names another\n",
        ),
        (
            ["2x3"],
            {"STABLEXLA_NUM_DEVICES": "none"},
            "error: STABLEXLA_NUM_DEVICES=none: it is a number from 1 to 1024\n",
        ),
    ],
)
def test_errors(example: Path, source: Path, shapes: list[str], environment: dict[str, str], said: str) -> None:
    done = run(example, source, *shapes, **environment)
    assert (done.stdout, done.stderr, done.returncode) == ("", said, 1)


def test_a_program_that_is_none(example: Path, tmp_path: Path) -> None:
    (tmp_path / "none.mlir").write_text("nonsense")
    done = run(example, tmp_path / "none.mlir")
    assert (done.stdout, done.returncode) == ("", 1)
    assert "custom op 'nonsense' is unknown" in done.stderr


def rewritten(saved: Path, output: Path, changes: Mapping[str, Any], function: Any) -> Path:
    """Write the saved program with another description, and right checksums."""
    file = container.read(saved)
    if isinstance(function, Mapping):
        function = {**file.description["function"], **function}
    container.write(output, {**file.description, **changes, "function": function}, file.sections)
    return output


CALL = {"call": "function", "target": "mine"}


@pytest.mark.parametrize(
    ("changes", "function", "said"),
    [
        ({"stablexla": "0.0.9"}, {}, f"stablexla 0.0.9 wrote it, and this is {sx.__version__}"),
        ({}, {"machine": "vax"}, "it was compiled for vax, and this is "),
        (
            {},
            {"features": ["avx1024"]},
            "it was compiled for a processor with avx1024, which this one does not have",
        ),
        ({}, {"num_devices": 2}, "its devices are not as many as its replicas and partitions"),
        ({"num_replicas": 2}, {"num_devices": 2}, "it is for device 1, where there are 1; STABLEXLA_NUM_DEVICES says"),
        ({"num_replicas": 2}, {"num_devices": 2, "collectives": [{"op": "sum"}]}, "there is no collective sum"),
        ({}, {"host_calls": [CALL]}, "it calls functions of Python's: mine"),
        ({"dynamic_parameters": [[0]]}, {}, "it has dimensions with sizes at run time"),
        ({"parameters": ["f33[2]"]}, {}, "no type of an array: f33[2]"),
        ({"parameters": ["f32[-2]"]}, {}, "an extent below 0"),
        ({}, {"aliases": [[0, 7]]}, "an alias of an array that is not there"),
        ({}, {"constants": [64]}, "its constants are not of the length that they should have"),
        ({}, {"code": [8]}, "machine code"),
        ({}, {"arena_bytes": -1}, "a size below 0"),
        ({}, {"arena_bytes": "1"}, "there is no integer where one is needed"),
        ({}, 1, "there is no mapping where one is needed"),
    ],
    ids=str,
)
def test_saved_programs_that_cannot_run(
    example: Path, saved: Path, tmp_path: Path, changes: Mapping[str, Any], function: Any, said: str
) -> None:
    done = run(example, rewritten(saved, tmp_path / "other.sxe", changes, function), "2x3", **NO_PYTHON)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith("error: a saved program")
    assert said in done.stderr


def test_damaged_files(example: Path, saved: Path, tmp_path: Path) -> None:
    data, drawn = saved.read_bytes(), np.random.default_rng(3)
    damaged = [data[:0], data[:20], data[:200], data[:-70], b"x" + data[1:], data[:100] + b"\xff" * 40 + data[140:]]
    for place in drawn.integers(0, len(data) - 64, 12):  # behind the last section are zeros, which nobody reads
        damaged.append(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    for each in damaged:
        (tmp_path / "damaged.sxe").write_bytes(each)
        done = run(example, tmp_path / "damaged.sxe", "2x3", **NO_PYTHON)
        assert (done.stdout, done.returncode) == ("", 1) or (done.stdout == DOUBLED and is_padding(each, data))
        assert done.returncode == 0 or done.stderr.startswith("error: a saved program does not hold together: ")


def is_padding(changed: bytes, data: bytes) -> bool:
    """Whether all that changed are bytes between sections, which no checksum has."""
    places = [i for i, (a, b) in enumerate(zip(changed, data, strict=True)) if a != b]
    return all(data[i] == 0 for i in places)


def test_sums_of_files_are_those_of_sha256(example: Path, saved: Path, tmp_path: Path) -> None:
    """At the sizes where the padding of the last block begins a new one."""
    file = container.read(saved)
    for size in (0, 1, 55, 56, 63, 64, 65, 119, 120, 128):
        source = bytes(range(size))
        container.write(tmp_path / "sized.sxe", file.description, {**file.sections, "source": source})
        assert run(example, tmp_path / "sized.sxe", "2x3", **NO_PYTHON).stdout == DOUBLED


def save(tmp_path: Path, computation: sx.XlaComputation) -> Path:
    sx.compile(computation).save(tmp_path / "program.sxe")
    return tmp_path / "program.sxe"


def test_constants_random_numbers_and_lapack(example: Path, tmp_path: Path) -> None:
    b = sx.XlaBuilder("constants")
    x = b.parameter(0, sx.f32[64, 64], "x")
    weights = np.eye(64, dtype=np.float32)[::-1]
    done = run(example, save(tmp_path, b.build(sx.dot(x, b.constant(weights)))), "64x64", **NO_PYTHON)
    assert done.stdout.startswith("result 0: f32[64,64] 0.0153809 0.0151367 0.0148926")
    b = sx.XlaBuilder("random")
    drawn = sx.rng_uniform(b.constant(np.float32(2)), b.constant(np.float32(3)), sx.f32[1000])
    done = run(example, save(tmp_path, b.build(drawn)), **NO_PYTHON)
    assert all(2 <= float(word) < 3 for word in done.stdout.split()[3:])
    b = sx.XlaBuilder("lapack")
    given = b.parameter(0, sx.f32[4, 4], "x") * 0.01 + b.constant(np.eye(4, dtype=np.float32) * 4)
    done = run(example, save(tmp_path, b.build(sx.cholesky(given, lower=True))), "4x4", **NO_PYTHON)
    assert done.stdout.startswith("result 0: f32[4,4] 2 0 0 0")


def test_questions_after_the_compiler_has_ended(tmp_path: Path, source: Path) -> None:
    """In a process of Python's, which can see its children."""
    script = """
import os, signal
from pathlib import Path
from tests.targets.runtime.test_pjrt_table import DOUBLE, Table, X, client_of, execute, get, program, put
from tests.pjrt_library import address_in_library
import numpy as np
table = client_of(Table(address_in_library()))
def double():
    built = program(table, DOUBLE)
    if isinstance(built, tuple):
        return built
    return get(table, execute(table, built.executable, put(table, X).buffer), X.shape)
np.testing.assert_array_equal(double(), 2 * X)
[child] = [int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
os.kill(child, signal.SIGKILL)
code, said = double()
assert code == 13 and "was ended by the signal Killed" in said, said
assert said.endswith("the next program gets another one"), said
np.testing.assert_array_equal(double(), 2 * X)
pid = os.fork()
if pid == 0:
    np.testing.assert_array_equal(double(), 2 * X)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
np.testing.assert_array_equal(double(), 2 * X)
print("done")
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=root)
    assert done.stdout == "done\n", done.stderr


def test_the_library_stays_when_it_is_closed(example: Path) -> None:
    script = f"""
import _ctypes, ctypes
path = {str(library())!r}
handle = _ctypes.dlopen(path)
ctypes.CDLL(path).GetPjrtApi()
for _ in range(3):
    _ctypes.dlclose(handle)
assert any(path in line for line in open("/proc/self/maps"))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_the_command_prints_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--library"]) == 0
    assert capsys.readouterr().out == f"{library()}\n"
    assert main([]) == 0
    assert "lib=$(python -m stablexla.pjrt --library)" in capsys.readouterr().out
