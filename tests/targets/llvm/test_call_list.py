"""`main` as a list of calls: which are listed, and programs with a list and without."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.element_types import element_type
from stablexla.targets.llvm import call_list, early_code
from stablexla.targets.llvm.call_list import LEAST_CALLS, MOST_ARGUMENTS, MOST_FLOATS, RUN_CALLS, list_calls
from stablexla.targets.llvm.list_object import LIST, CallList
from stablexla.targets.llvm.to_llvm import LLVM, TO_LLVM
from stablexla.targets.llvm.toolchain import llvm_tool
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from stablexla.targets.runtime import RunLimits
from tests.targets.llvm.test_split_module import many


@pytest.mark.parametrize(("arguments", "is_listed"), [(MOST_ARGUMENTS, True), (MOST_ARGUMENTS + 1, False)])
def test_kernels_of_too_many_arguments_are_called(arguments: int, is_listed: bool) -> None:
    types = ", ".join(["memref<4xf32>"] * arguments + ["index", "index"])
    call = f"call @kernel_impl({', '.join(['%x'] * arguments)}, %zero, %one) : ({types}) -> ()\n"
    text = f"""
    func.func private @kernel_impl({types}) attributes {{stablexla.elsewhere}}
    func.func @main(%x: memref<4xf32>) {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      {call * LEAST_CALLS()}
      return
    }}"""
    with upstream_context():
        module = ir.Module.parse(text)
        list_calls(module)
        assert module.operation.verify()
        assert (LIST in str(module)) == is_listed


CALLS = """
func.func private @kernel_impl(memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32>, %n: memref<1xindex>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  return
}"""


@pytest.mark.parametrize(
    ("there", "instead", "is_data"),
    [
        ("", "", True),
        ("%one = ", "%two = arith.constant 2 : index\n  %one = ", True),  # nothing that runs
        ("%zero, %one)", "%zero, %many)", False),  # an integer that main computes
        ("  return", "  memref.store %one, %n[%zero] : memref<1xindex>\n  return", False),
        ("func.func @main", "func.func private @other() { return }\nfunc.func @main", False),
        ("func.func @main", 'memref.global "private" @other : memref<4xf32>\nfunc.func @main', False),
        ("func.func @main", "func.func private @other()\nfunc.func @main", True),
    ],
)
def test_a_main_that_is_nothing_else_is_data(there: str, instead: str, is_data: bool) -> None:
    text = CALLS.replace(there, instead, 1)
    if "%many" in instead:
        text = text.replace("  call", "  %many = memref.load %n[%zero] : memref<1xindex>\n  call", 1)
        text = text.replace("(%x, %zero", "(%x, %many, %zero").replace("%zero, %many)", "%zero, %one)")
        text = text.replace("(memref<4xf32>, index, index)", "(memref<4xf32>, index, index, index)")
    with upstream_context():
        module = ir.Module.parse(text)
        list_calls(module)
        assert module.operation.verify()
        assert (LIST in str(module), RUN_CALLS in str(module)) == (is_data, not is_data)


X86_64 = """
movq %rdi, %rcx
movq 0x1e(%rip), %rdi # 0x28
movq 0x1f(%rip), %rsi # 0x30
movq 0x28(%rip), %rdx # 0x40
xorl %r8d, %r8d
jmpq *0x17(%rip) # 0x38
"""
AARCH64 = """
mov x3, x0
ldr x0, 0x20
ldr x1, 0x28
ldr x2, 0x38
mov x4, xzr
ldr x16, 0x30
br x16
"""


@pytest.mark.parametrize(("machine", "code", "start"), [("x86_64", X86_64, 0x28), ("aarch64", AARCH64, 0x20)])
def test_the_object_file_of_a_list(tmp_path: Path, machine: str, code: str, start: int) -> None:
    """As LLVM's tools read it: the words behind the code are where the code reads them."""
    numbers = np.arange(-3, 40, dtype=np.int64) << 40
    with upstream_context():
        calls = CallList(["first", "second"], numbers, ir.ArrayAttr.get([]))
    path = tmp_path / "list.o"
    path.write_bytes(calls.object_file(machine))

    def said(tool: str, *options: str) -> str:
        done = subprocess.run([llvm_tool(tool), *options, path], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    listing = said("llvm-objdump", "-d", "--no-show-raw-insn").splitlines()
    instructions = [" ".join(line.partition(":")[2].split()) for line in listing if re.match(r" +[0-9a-f]+:", line)]
    expected = code.strip().splitlines()
    assert [line.partition(" <")[0] for line in instructions[: len(expected)]] == expected
    relocations = re.findall(r"^([0-9a-f]{16}) .* (\S+ \+ \S+)$", said("llvm-readelf", "-rW"), re.MULTILINE)
    assert [(int(place, 16), name) for place, name in relocations] == [
        (start, ".rodata + 0"),
        (start + 8, ".rodata + 10"),
        (start + 16, "stablexla_run_calls + 0"),
        (0, "first + 0"),
        (8, "second + 0"),
    ]
    assert re.search(rf" {start} FUNC +GLOBAL +DEFAULT +1 _mlir_main$", said("llvm-readelf", "-sW"), re.MULTILINE)
    said("llvm-objcopy", *(f"--dump-section={name}={tmp_path / name[1:]}" for name in (".text", ".rodata")))
    assert np.fromfile(tmp_path / "text", np.int64)[-1] == len(numbers)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "rodata", np.int64)[2:], numbers)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel's code is made early."""
    monkeypatch.setattr(early_code.MOST_OF_SMALL, "usual", 3)
    two = type("Two", (), {"num_threads": max(2, early_code.host_target().num_threads)})
    monkeypatch.setattr(early_code, "host_target", lambda: two)


def program() -> sx.XlaComputation:
    b = sx.XlaBuilder("many")
    return b.build(many(b))


def symbols(executable: sx.Executable) -> bytes:
    return b"".join(executable._function.keep_alive.object_files())


@pytest.mark.usefixtures("early")
def test_equal_results_on_both_sides_of_the_gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((37, 41), np.float32)
    counts = []
    write = call_list._ListedMain.write
    monkeypatch.setattr(
        call_list._ListedMain, "write", lambda self, module: (counts.append(len(self.calls)), write(self, module))
    )
    listed = sx.compile(program())
    made = []
    for least in (counts[0] - 1, counts[0], counts[0] + 1):
        monkeypatch.setattr(LEAST_CALLS, "usual", least)
        made.append(sx.compile(program()))
    assert [RUN_CALLS.encode() in symbols(each) for each in made] == [True, True, False]
    path = tmp_path / "many.sx"
    listed.save(path)
    wanted = made[-1].execute([x])
    for each in (listed, *made, sx.load_executable(path)):
        for one, other in zip(each.execute([x]), wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        said = {text.partition(" at ")[0] for text in each._function.places.values()}
        assert each is made[-1] or said >= {"contraction_0", "contraction_1", "row_0", "loop_0"}


@pytest.mark.usefixtures("early")
def test_a_run_is_left_in_the_middle_of_a_list() -> None:
    x = np.random.default_rng(1).standard_normal((37, 41), np.float32)
    listed = sx.compile(program())
    assert RUN_CALLS.encode() in symbols(listed)
    wanted = listed.execute([x])
    with RunLimits() as limits:
        limits.cancel()
        with pytest.raises(
            sx.ExecutionError, match=r"(?s)cancelled.*in (contraction|loop|row)_\d+ at .*test_split_module.py"
        ):
            listed.execute([x])
    for one, other in zip(listed.execute([x]), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("floats", "is_listed"), [(MOST_FLOATS, True), (MOST_FLOATS + 1, False)])
def test_kernels_of_too_many_floats_are_called(floats: int, is_listed: bool) -> None:
    text = CALLS.replace("%x, %zero", f"%x, {'%two, ' * floats}%zero")
    text = text.replace("(memref<4xf32>, index", f"(memref<4xf32>, {'f32, ' * floats}index")
    text = text.replace("  %one =", "  %two = arith.constant 2.0 : f32\n  %one =")
    with upstream_context():
        module = ir.Module.parse(text)
        list_calls(module)
        assert module.operation.verify()
        assert (LIST in str(module)) == is_listed


def test_bf16_of_a_main_that_takes_one_array_becomes_bits() -> None:
    """No function's type shows it then; `CALLS` with a number that main loads."""
    text = CALLS.replace("%x, %zero, %one)", "%x, %half, %zero, %one)").replace("4xf32", "4xbf16")
    text = text.replace("memref<4xbf16>, index, index)", "memref<4xbf16>, bf16, index, index)")
    text = text.replace("  call", "  %half = memref.load %x[%one] : memref<4xbf16>\n  call", 1)
    with upstream_context():
        module = ir.Module.parse(text)
        made = run_pipeline(module, Pipeline("llvm", [Step("llvm", ",".join(TO_LLVM), LLVM)]))
        assert RUN_CALLS in str(made)
        assert "bf16" not in str(made)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("type_", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_floats_of_main(monkeypatch: pytest.MonkeyPatch, type_: Any) -> None:
    """Constants, one that is no number among them, and what main computes."""

    def function(x: Any, scale: Any) -> Any:
        bits = {2: 0xFF81, 4: 0xFFC12345, 8: 0xFFF8123456789ABC}[x.dtype.itemsize]
        least = jax.lax.bitcast_convert_type(np.array(bits, f"u{x.dtype.itemsize}"), x.dtype)
        image, start = x.reshape(1, 16, 16, 16), np.array(-np.inf, x.dtype)
        pooled = jax.lax.reduce_window(image, start, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME").reshape(32, 32)
        spread = jnp.full((64, 64), least).at[::3, ::2].set(pooled[:22, :32])
        for step in range(3):
            scale = scale * scale + step
            x = jnp.tanh(x @ x * 0.1) * scale + jax.lax.reduce_window(
                x, np.array(step, x.dtype), jax.lax.max, (3, 3), (1, 1), "SAME"
            )
        return x, pooled, spread

    with jax.enable_x64(True):
        x = np.random.default_rng(1).standard_normal((64, 64)).astype(type_)
        arguments = [x, type_(0.75)]
        text = jax.jit(function).lower(*arguments).as_text()
        expected = jax.jit(function)(*arguments)
    write, found = call_list._ListedMain.write, set()

    def noted(self: Any, module: ir.Module) -> None:
        found.update((str(v.type), self._argument(v)[0]) for call in self.calls for v in call.operands)
        write(self, module)

    monkeypatch.setattr(call_list._ListedMain, "write", noted)
    listed = sx.compile(text)
    assert RUN_CALLS.encode() in symbols(listed)
    name = element_type(np.dtype(type_)).mlir
    assert found >= {(name, kind) for kind in ((-1, -2) if name == "bf16" else (-6, -7))}
    monkeypatch.setattr(LEAST_CALLS, "usual", 1000)
    called = sx.compile(text)
    assert RUN_CALLS.encode() not in symbols(called)
    for one, other in zip(listed.execute(arguments), called.execute(arguments), strict=True):
        assert one.tobytes() == other.tobytes()
    for one, other in zip(listed.execute(arguments), expected, strict=True):
        kind = np.float64 if type_ is np.float64 else np.float32
        np.testing.assert_allclose(one.astype(kind), np.asarray(other).astype(kind), rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("early")
def test_integers_that_main_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several types, before a loop and in what comes after it, where a kernel of the list makes one of them."""

    def function(x: Any, wide: Any, narrow: Any, flag: Any) -> Any:
        for step in range(4):
            x = jnp.where(flag, jnp.tanh(x @ x * 0.1), x) + (narrow + step).astype(x.dtype)
            x = jax.lax.dynamic_update_slice(x, jnp.tanh(x[:3]), (wide + step, 0))
        found = jnp.argmax(x[0])
        y = jax.lax.fori_loop(0, found % 3 + 1, lambda _, y: jnp.sin(y) + 1, x)
        for _ in range(4):
            y = jax.lax.dynamic_slice(jnp.tanh(y @ y * 0.1), (found % 4, 0), (y.shape[0] - 5, y.shape[1]))[
                :, : y.shape[0] - 5
            ]
        return x, y

    x = np.random.default_rng(1).standard_normal((37, 37), np.float32)
    arguments = [x, np.int32(-2), np.int8(-3), np.bool_(True)]
    text = jax.jit(function).lower(*arguments).as_text()
    listed = sx.compile(text)
    assert RUN_CALLS.encode() in symbols(listed)
    monkeypatch.setattr(LEAST_CALLS, "usual", 1000)
    called = sx.compile(text)
    assert RUN_CALLS.encode() not in symbols(called)
    for one, other in zip(listed.execute(arguments), called.execute(arguments), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(listed.execute(arguments), jax.jit(function)(*arguments), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
