"""Programs as C libraries. The executable in this process is the oracle: every bit of the results is the same."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.ahead_of_time import Library, compile_library
from stablexla.compiling.c_header import function_name, header, identifier, is_function_name
from stablexla.targets.llvm import toolchain
from stablexla.targets.signature.signature import signature_of
from stablexla.tools.compile import main

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
_numbers = itertools.count()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def model() -> sx.XlaComputation:
    """A constant, a contraction, parallel loops, an elementary function, a sort."""
    b = sx.XlaBuilder("model")
    x = b.parameter(0, sx.f32[65, 96], name="x")
    hidden = sx.tanh(sx.dot(x, b.constant(numbers(96, 70))))
    return b.build(sx.tuple((hidden, sx.sort(hidden, lambda a, c: a < c, 1))))


def built(program: Any, folder: Path, **options: Any) -> tuple[ctypes.CDLL, Library]:
    """The library, under a name that no other test has: a library stays in the process."""
    output = folder / f"m{next(_numbers)}.so"
    made = compile_library(program, output, **options)
    return ctypes.CDLL(str(output)), made


def call(library: ctypes.CDLL, name: str, given: Sequence[np.ndarray], like: Sequence[np.ndarray]) -> list[np.ndarray]:
    results = [np.empty_like(a) for a in like]
    code = library[name](*(ctypes.c_void_p(a.ctypes.data) for a in [*given, *results]))
    assert code == 0
    return results


def same_as_here(program: Any, given: Sequence[np.ndarray], folder: Path, **options: Any) -> None:
    wanted = sx.compile(program, options=options.get("options")).execute(list(given))
    library, made = built(program, folder, **options)
    for actual, want in zip(call(library, made.name, given, wanted), wanted, strict=True):
        assert actual.tobytes() == want.tobytes()


def test_a_c_program_calls_it(tmp_path: Path) -> None:
    """Without Python: from four threads, with results at any address, and with wrong arguments."""
    (tmp_path / "model.mlir").write_text(str(model()).replace("%arg0", "%x"))
    output, head = tmp_path / "libmodel.so", tmp_path / "model.h"
    compile_library(model(), output, header_file=head)
    source = Path(__file__).with_name("program.c")
    command = ["gcc", "-std=c11", *WARNINGS, f"-I{tmp_path}", str(source), "-o", str(tmp_path / "program"), str(output)]
    subprocess.run([*command, "-pthread"], check=True, timeout=60)
    x = numbers(65, 96)
    (tmp_path / "x").write_bytes(x.tobytes())
    subprocess.run([tmp_path / "program", tmp_path / "x", tmp_path / "y"], check=True, timeout=60, env={})
    wanted = sx.compile(model()).execute([x])
    assert (tmp_path / "y").read_bytes() == b"".join(a.tobytes() for a in wanted)


def test_an_object_file_and_the_runtime(tmp_path: Path) -> None:
    compile_library(model(), tmp_path / "model.o", header_file=tmp_path / "model.h")
    (tmp_path / "main.cpp").write_text("""
#include "model.h"
alignas(64) static float x[65 * 96], y[65 * 70], z[65 * 70];
int main() { x[0] = 1; return model(x, y, z) + (y[0] == 0) + (z[0] > z[1]); }
""")
    command = ["c++", *WARNINGS, f"-I{tmp_path}", tmp_path / "main.cpp", tmp_path / "model.o", toolchain.archive()]
    subprocess.run([*command, "-pthread", "-o", tmp_path / "main"], check=True, timeout=60)
    for threads, said in (("2", ""), ("", ""), ("abc", "STABLEXLA_NUM_THREADS is no number"), ("2x", "is no number")):
        environment = {"STABLEXLA_NUM_THREADS": threads}
        command = [tmp_path / "main"]
        ran = subprocess.run(command, check=True, timeout=60, env=environment, capture_output=True, text=True)
        assert ran.stderr.count("\n") == bool(said)
        assert said in ran.stderr


def test_text_forms(tmp_path: Path) -> None:
    b = sx.XlaBuilder("text")
    computation = b.build(b.parameter(0, sx.f32[300]) + b.constant(numbers(300)))
    for name, found in (("program.ll", "define i32 @program("), ("program.s", ".globl\tprogram_main")):
        compile_library(computation, tmp_path / name)
        assert found in (tmp_path / name).read_text()
    command = ["cc", "-shared", "-o", tmp_path / "program.so", tmp_path / "program.s", toolchain.archive()]
    subprocess.run([*command, "-lstdc++", "-pthread"], check=True, timeout=60)
    x = numbers(300)
    (y,) = call(ctypes.CDLL(str(tmp_path / "program.so")), "program", [x], [x])
    assert y.tobytes() == (x + numbers(300)).tobytes()


@pytest.mark.parametrize("element", ["pred", "s4", "u16", "s64", "bf16", "f16", "f8e4m3fn", "f64", "c64"])
def test_element_types(element: str, tmp_path: Path) -> None:
    b = sx.XlaBuilder("types")
    x = b.parameter(0, sx.Shape(element, (5,)))
    y = sx.or_(x, x) if element == "pred" else x + x
    values = np.array([0, 1, 2, 3, 1]).astype(sx.Shape(element, ()).element_type.dtype)
    same_as_here(b.build(y), [values], tmp_path)


@pytest.mark.parametrize("options", [sx.CompileOptions(flush_denormals=True), sx.CompileOptions(opt_level=3)])
def test_options(options: sx.CompileOptions, tmp_path: Path) -> None:
    b = sx.XlaBuilder("tiny")
    computation = b.build(sx.exp(b.parameter(0, sx.f32[64]) * 0.5))
    same_as_here(computation, [np.full(64, 1.2e-38, np.float32)], tmp_path, options=options)


def test_random_numbers_follow_the_seed(tmp_path: Path) -> None:
    b = sx.XlaBuilder("random")
    computation = b.build(sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[50]))
    here = sx.compile(computation)
    library, made = built(computation, tmp_path)
    here.seed(11)
    library[f"{made.name}_seed"](ctypes.c_uint64(11))
    for _ in range(2):
        wanted = here.execute([])
        assert call(library, made.name, [], wanted)[0].tobytes() == wanted[0].tobytes()


def test_dynamic_sizes_are_arguments(tmp_path: Path) -> None:
    b = sx.XlaBuilder("bounded")
    x = b.parameter(0, sx.f32["<=8"], name="x")
    computation = b.build(sx.tuple((x * 2, sx.reduce(x, b.constant(0.0), sx.add, (0,)))))
    head = tmp_path / "model.h"
    library, made = built(computation, tmp_path, header_file=head, name="bounded")
    assert "const int32_t* x_size0" in head.read_text()
    assert "int32_t* y0_size0" in head.read_text()
    room, three = np.arange(8, dtype=np.float32), np.array(3, np.int32)
    like = [room, np.empty((), np.float32), three]
    doubled, total, size = call(library, made.name, [room, three], like)
    assert (doubled[:3].tolist(), total, size) == ([0, 2, 4], 3, 3)


# ---- functions of other libraries ------------------------------------------------------------------------------------


def test_custom_calls_of_c_functions(tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text("void mine(void* out, void** in) { *(float*)out = 2 * *(float*)in[0]; }")
    subprocess.run(["cc", "-c", "-fPIC", tmp_path / "mine.c", "-o", tmp_path / "mine.o"], check=True, timeout=60)
    b = sx.XlaBuilder("calls")
    computation = b.build(sx.custom_call("mine", b.parameter(0, sx.f32[1]), sx.f32[1]))
    arguments: dict[str, Any] = {"c_functions": ["mine"]}
    library, made = built(computation, tmp_path, link_arguments=[str(tmp_path / "mine.o")], **arguments)
    x = np.array([4], np.float32)
    assert call(library, made.name, [x], [x])[0] == 8
    assert made.external == ("mine",)
    with pytest.raises(sx.UnsupportedError, match="the program calls mine, which the library must be linked with"):
        built(computation, tmp_path, **arguments)
    with pytest.raises(sx.CompileError, match=r"(?s)failed with exit code.*mine"):
        built(computation, tmp_path, link_arguments=["-lm"], **arguments)
    with pytest.raises(sx.CompileError, match="there is no target 'mine'"):
        built(computation, tmp_path)


def test_lapack_is_the_users(tmp_path: Path) -> None:
    b = sx.XlaBuilder("solve")
    computation = b.build(sx.cholesky(b.parameter(0, sx.f64[40, 40])))
    with pytest.raises(sx.UnsupportedError, match=r"calls dpotrf_, which .*\n  try: .*-lopenblas"):
        compile_library(computation, tmp_path / "solve.so")
    made = compile_library(computation, tmp_path / "solve.o")
    assert made.external == ("dpotrf_",)


POTRF = """
#include <math.h>
void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info) {
  for (int j = 0; j < *n; ++j) {
    for (int i = j; i < *n; ++i) {
      double *x = *uplo == 'L' ? &a[i + j * *lda] : &a[j + i * *lda];
      for (int k = 0; k < j; ++k)
        *x -= *uplo == 'L' ? a[i + k * *lda] * a[j + k * *lda] : a[k + i * *lda] * a[k + j * *lda];
      *x = i == j ? sqrt(*x) : *x / a[j + j * *lda];
    }
  }
  *info = 0;
}
"""


def test_lapack_of_a_library(tmp_path: Path) -> None:
    """The library is one of a single function, which counts as an oracle as well as any."""
    (tmp_path / "lapack.c").write_text(POTRF)
    subprocess.run(["cc", "-O1", "-c", "-fPIC", "-o", tmp_path / "lapack.o", tmp_path / "lapack.c"], check=True)
    b = sx.XlaBuilder("solve")
    computation = b.build(sx.cholesky(b.parameter(0, sx.f64[3, 150, 150]), True))
    library, made = built(computation, tmp_path, link_arguments=[str(tmp_path / "lapack.o")])
    x = np.random.default_rng(1).standard_normal((3, 150, 150))
    x = x @ x.transpose(0, 2, 1) + 150 * np.eye(150)
    (factor,) = call(library, made.name, [x], [x])
    np.testing.assert_allclose(factor, np.linalg.cholesky(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda b: b.infeed(sx.f32[2]), "infeed"),
        (lambda b: b.custom_call("python", (), sx.f32[2]), "the custom call 'python'"),
    ],
)
def test_what_only_python_does_is_refused(
    make: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
    sx.register_custom_call("python", lambda: np.zeros(2, np.float32))
    b = sx.XlaBuilder("host")
    with pytest.raises(
        sx.UnsupportedError, match=rf"(?s)a library without Python cannot do this.*{what}.*test_library\.py"
    ):
        compile_library(b.build(make(b)), tmp_path / "host.so")
    assert not list(tmp_path.iterdir())


def test_shapes_must_be_known(tmp_path: Path) -> None:
    text = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
    with pytest.raises(sx.UnsupportedError, match="the shapes of the program's parameters are not known yet"):
        compile_library(text, tmp_path / "open.so")


# ---- other processors ------------------------------------------------------------------------------------------------


def test_other_processors(tmp_path: Path) -> None:
    compile_library(model(), tmp_path / "old.o", cpu="x86-64")
    text = subprocess.run(
        [toolchain.llvm_tool("llvm-objdump"), "-d", tmp_path / "old.o"], capture_output=True, text=True, check=True
    ).stdout
    assert "%xmm" in text
    assert "%ymm" not in text
    with pytest.raises(sx.CompileError, match="how wide the vectors of 'pentium' are is not known here"):
        compile_library(model(), tmp_path / "x.o", cpu="pentium")
    with pytest.raises(sx.CompileError, match="'nonsense' is no processor of x86_64"):
        compile_library(model(), tmp_path / "x.o", cpu="nonsense", options=sx.CompileOptions(vector_bits=128))


def test_another_kind_of_machine(tmp_path: Path) -> None:
    options = sx.CompileOptions(vector_bits=128)
    compile_library(model(), tmp_path / "arm.o", cpu="generic", triple="aarch64-linux-gnu", options=options)
    assert (tmp_path / "arm.o").read_bytes()[18] == 183  # EM_AARCH64


def test_products_for_aarch64(tmp_path: Path) -> None:
    """A tile of sums takes more than the 16 registers that x86 has at this width."""
    compile_library(model(), tmp_path / "arm.s", triple="aarch64-linux-gnu")
    sums = set(re.findall(r"fmla\tv(\d+)\.4s", (tmp_path / "arm.s").read_text()))
    assert len(sums) > 16


def runtime_for(machine: str, folder: Path) -> Path:
    """The runtime without Python for another machine, compiled from CMakeLists.txt's list by GCC's cross compiler."""
    root = Path(__file__).parents[2]
    listed = re.search(r"add_library\(stablexla_standalone STATIC(.*?)\)", (root / "CMakeLists.txt").read_text(), re.S)
    assert listed is not None
    runtime = root / "targets" / "runtime" / "cpp"
    files = [runtime / line.strip().removeprefix("${runtime_dir}/") for line in listed[1].split()]
    options = ["-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", f"-I{runtime / 'core'}", f"-I{runtime / 'devices'}"]
    subprocess.run([f"{machine}-g++", "-c", *options, *files], check=True, cwd=folder, timeout=120)
    archive = folder / toolchain.ARCHIVE
    subprocess.run([f"{machine}-ar", "rcs", archive, *folder.glob("*.o")], check=True, timeout=60)
    return archive


@pytest.mark.skipif(
    not (shutil.which("qemu-aarch64") and shutil.which("aarch64-linux-gnu-g++")),
    reason="no emulator of AArch64: apt-get install qemu-user g++-aarch64-linux-gnu",
)
def test_a_c_program_on_an_emulated_aarch64(tmp_path: Path) -> None:
    """Code for all of AArch64, and for a processor that has more. The bytes for this machine are the oracle, up to the
    order of sums.
    """
    triple = "aarch64-linux-gnu"
    (tmp_path / "objects").mkdir()
    archive = runtime_for(triple, tmp_path / "objects")
    x = numbers(65, 96)
    (tmp_path / "x").write_bytes(x.tobytes())
    wanted = np.concatenate([a.reshape(-1) for a in sx.compile(model()).execute([x])])
    source = Path(__file__).with_name("program.c")
    for cpu in ("generic", "neoverse-n1", "neoverse-v1"):
        output, program = tmp_path / "libmodel.so", tmp_path / f"on-{cpu}"
        compile_library(model(), output, header_file=tmp_path / "model.h", cpu=cpu, triple=triple, runtime=archive)
        command = [f"{triple}-gcc", *WARNINGS, f"-I{tmp_path}", str(source), "-o", str(program), str(output)]
        subprocess.run([*command, "-pthread"], check=True, timeout=60)
        emulated = ["qemu-aarch64", "-L", f"/usr/{triple}", str(program)]
        subprocess.run([*emulated, tmp_path / "x", tmp_path / "y"], check=True, timeout=120)
        actual = np.frombuffer((tmp_path / "y").read_bytes(), np.float32)
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


# ---- the header ------------------------------------------------------------------------------------------------------


def test_names_become_names_of_c() -> None:
    for text, name in {"x": "x", "a.b c": "a_b_c", "int": "int_", "3d": "_3d", "": "y", "äö": "y", "x'": "x"}.items():
        assert identifier(text, "y") == name


HOSTILE = [
    *("x", "x", "X", "x_1", "x_2", "y0", "int", "int_", "mutable", "requires", "linux", "errno", "NULL", "INT8_MAX"),
    *("int8_t", "uint64_t", "assert", "I", "bool", "nullptr", "Größe", "größe", "温度", "*/", "/*", "x.y", "x-y", "1"),
    *("ODD_X_BYTES", "BYTES", "odd", "odd_main", "VERSION", "ODD_VERSION", "_", "__", "_X", "__x", "a'b", "a\\b"),
]
"""Names of parameters: the same ones, in capitals too, names of results and of others, words and macros of C."""


def test_no_names_of_c_are_alike(tmp_path: Path) -> None:
    b = sx.XlaBuilder("odd*/ /*")
    computation = b.build(sx.tuple([b.parameter(i, sx.f32[i + 1], name=name) for i, name in enumerate(HOSTILE)]))
    head = tmp_path / "odd.h"
    compile_library(computation, tmp_path / "odd.ll", header_file=head, name="odd")
    names = re.findall(r"float\* (\w+) /\*", head.read_text())
    assert len({name.upper() for name in names}) == len(names) == 2 * len(HOSTILE)
    plain = ["x", "x_1", "X_2", "x_1_3", "x_2_4", "y0", "int_", "int__7", "mutable_", "requires_", "linux_", "errno_"]
    assert names[: len(plain)] == plain
    assert names[len(HOSTILE)] == "y0_0"
    macros = re.findall(r"#define (\w+_BYTES) (\d+)", head.read_text())
    assert [int(size) for _, size in macros] == 2 * [4 * (i + 1) for i in range(len(HOSTILE))]
    lines = ["stdint.h", "errno.h", "assert.h", "stddef.h", "limits.h", "stdio.h"]
    for compiler, suffix, first in (("cc", "c", "complex.h"), ("c++", "cpp", "complex")):
        included = "".join(f"#include <{line}>\n" for line in [first, *lines])
        (tmp_path / f"main.{suffix}").write_text(
            f'{included}#include "odd.h"\nint main(void) {{ return ODD_NUM_RESULTS; }}'
        )
        for standard in ([], ["-std=c99" if suffix == "c" else "-std=c++20"]):
            command = [compiler, "-Wall", "-Wextra", "-Werror", *standard, "-fsyntax-only", tmp_path / f"main.{suffix}"]
            subprocess.run(command, check=True, timeout=60)


def test_functions_take_no_name_of_c() -> None:
    for text in ("model", "predict", "my_exp", "Exp"):
        assert function_name(text, "program") == text
    names = {"main": "main_", "exp": "exp_", "free": "free_", "expf": "expf_", "read": "read_", "printf": "printf_"}
    for text, name in {**names, "stablexla": "program_stablexla", "": "program"}.items():
        assert not is_function_name(text)
        assert function_name(text, "program") == name
    assert identifier("exp", "x") == "exp", "a parameter may be called that"


@pytest.mark.parametrize("name", ["mine", "a"])
def test_names_of_what_the_program_calls(name: str, tmp_path: Path) -> None:
    """The target is called as the library, or as one of the functions that it has besides."""
    target = name if name == "mine" else "a_main"
    b = sx.XlaBuilder("calls")
    computation = b.build(sx.custom_call(target, b.parameter(0, sx.f32[1]), sx.f32[1]))
    with pytest.raises(sx.CompileError, match=rf"the library cannot be called '{name}': .* has or calls {target}"):
        compile_library(computation, tmp_path / "x.o", name=name, c_functions=[target])
    assert not list(tmp_path.iterdir())


def test_what_fails_is_an_error_code(tmp_path: Path) -> None:
    """No exception leaves the library, of whatever kind."""
    compile_library(model(), tmp_path / "model.o")
    (tmp_path / "main.cpp").write_text(FAILING)
    command = ["c++", *WARNINGS, tmp_path / "main.cpp", tmp_path / "model.o", toolchain.archive(), "-pthread"]
    subprocess.run([*command, "-o", tmp_path / "main"], check=True, timeout=60)
    subprocess.run([tmp_path / "main"], check=True, timeout=60, env={"STABLEXLA_NUM_THREADS": "4"})


FAILING = """
#include <pthread.h>
#include <cerrno>
#include <cstdlib>
#include <new>
extern "C" int model(const float*, float*, float*);
static bool fails = true;
void* operator new(std::size_t size) {
  if (fails) throw 5;
  return std::malloc(size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
alignas(64) static float x[65 * 96], y[65 * 70], z[65 * 70];
int main() {
  if (model(x, y, z) != 3) return 1;
  fails = false;
  return model(x, y, z);
}
"""


def test_headers_are_c_and_cpp(tmp_path: Path) -> None:
    text = """module @odd {
      func.func @main(%a: tensor<2xcomplex<f32>> loc("int"), %b: tensor<i1> loc("a b"), %c: tensor<3xbf16> loc("a-b"))
          -> (tensor<2xcomplex<f32>>, tensor<i1>, tensor<3xbf16>) {
        return %a, %b, %c : tensor<2xcomplex<f32>>, tensor<i1>, tensor<3xbf16>
      }
    }"""
    (tmp_path / "odd.h").write_text(header("odd", signature_of(sx.load(text)), is_random=True))
    for compiler, suffix in (("cc", "c"), ("c++", "cpp")):
        (tmp_path / f"main.{suffix}").write_text('#include "odd.h"\n#include "odd.h"\nint main(void) { return 0; }\n')
        command = [compiler, *WARNINGS, "-fsyntax-only", tmp_path / f"main.{suffix}"]
        subprocess.run(command, check=True, timeout=60)
    assert (
        "int odd(const float* int_ /* c64[2] of pairs */,\n    const uint8_t* a_b /* pred[] */,"
        in (tmp_path / "odd.h").read_text()
    )


# ---- the tool --------------------------------------------------------------------------------------------------------

TEXT = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n  return %x : tensor<2xf32>\n}\n"


def test_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, output, head = tmp_path / "in.mlir", tmp_path / "libcopy.so", tmp_path / "copy.h"
    program.write_text(TEXT)
    assert main([str(program), "-o", str(output), "--header", str(head), "--num-threads=1"]) == 0
    assert "int copy(const float*" in head.read_text()
    x = numbers(2)
    assert call(ctypes.CDLL(str(output)), "copy", [x], [x])[0].tobytes() == x.tobytes()
    assert main(["--archive"]) == 0
    assert Path(capsys.readouterr().out.strip()).exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "a program and -o OUTPUT are needed"),
        (["in.mlir"], 2, "a program and -o OUTPUT are needed"),
        (["in.mlir", "-o", "out.xyz"], 1, "what to make does not follow from the name"),
        (["nowhere.mlir", "-o", "out.so"], 1, "nowhere.mlir: cannot be read"),
        (["in.mlir", "-o", "out.so", "--name=a-b"], 1, "'a-b' cannot be the name of a function in C"),
        (["in.mlir", "-o", "out.so", "--name=exp"], 1, "'exp' cannot be the name of the program's function"),
        (["in.mlir", "-o", "out.so", "--name=main"], 1, "'main' cannot be the name of a function in C"),
        (["in.mlir", "-o", "no/folder/out.so"], 1, "there is no folder no/folder\n  try: mkdir -p no/folder\n"),
        (["in.mlir", "-o", "out.so", "--header=no/out.h"], 1, "no/out.h: there is no folder no\n  try: mkdir -p no\n"),
        (["in.mlir", "-o", "out.ptx", "--target=gpu:sm_80", "--header=no/out.h"], 1, "there is no folder no"),
        (
            ["in.mlir", "-o", "-"],
            2,
            "what to print does not follow from the name\n  try: --emit=assembly or",
        ),
        (
            ["in.mlir", "-o", "-", "--emit=library"],
            2,
            "--emit=library is no text\n  try: --emit=assembly or",
        ),
        (["in.mlir", "-o", "out.so", "--linker=/no/linker"], 1, "/no/linker cannot be run"),
    ],
)
def test_wrong_usage(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.mlir").write_text(TEXT)
    try:
        found = main(arguments)
    except SystemExit as end:
        found = int(end.code or 0)
    assert found == code
    assert said in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mlir"]


def test_text_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`-o -`, as clang and mlir-opt have it."""
    monkeypatch.chdir(tmp_path)
    Path("in.mlir").write_text(TEXT)
    for words, found in (
        (["--emit=llvm-ir"], "define i32 @program("),
        (["--emit=assembly", "--name=copy"], ".globl\tcopy_main"),
        (["--target=gpu:sm_80"], ".target sm_80"),
    ):
        assert main(["in.mlir", "-o", "-", *words, "--header=out.h"]) == 0
        printed = capsys.readouterr()
        assert found in printed.out
        assert printed.err == ""
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mlir", "out.h"]


@pytest.mark.skipif(not shutil.which("readelf"), reason="needs readelf")
def test_what_a_library_needs(tmp_path: Path) -> None:
    """As the documentation says: the libraries of C, and those of C++ unless they are linked statically."""

    def needed(*arguments: str) -> set[str]:
        compile_library(model(), tmp_path / "model.so", link_arguments=arguments)
        said = subprocess.run(["readelf", "-d", tmp_path / "model.so"], capture_output=True, text=True, check=True)
        return {line.split("[")[1].split(".so")[0] for line in said.stdout.splitlines() if "(NEEDED)" in line}

    of_c = {"libc", "libm", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert {"libstdc++"} <= needed() <= {"libstdc++", "libgcc_s", *of_c}
    assert needed("-static-libstdc++", "-static-libgcc") <= of_c


def test_without_a_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(sx.CompileError, match=r"(?s)there is no linker.*try: -o program\.o"):
        compile_library(TEXT, tmp_path / "copy.so")
    compile_library(TEXT, tmp_path / "copy.o")


def test_it_runs_as_a_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stablexla.tools.compile", "-", "-o", str(tmp_path / "copy.o")]
    subprocess.run(command, input=TEXT, text=True, check=True, timeout=60)
    assert (tmp_path / "copy.o").exists()


def test_a_shared_library_for_another_machine(tmp_path: Path) -> None:
    with pytest.raises(sx.CompileError, match=r"aarch64-linux-gnu needs the runtime.*\n  try: .*model\.o, an"):
        compile_library(model(), tmp_path / "model.so", triple="aarch64-linux-gnu")
