"""What is refused before LLVM, ptxas or a driver sees it: each with an error, and nothing on standard error."""

from __future__ import annotations

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.gpu import emitters
from stablexla.targets.gpu.chips import CHIPS, SHARED_KIB, GpuName, compute_capability, shared_limit
from stablexla.targets.gpu.ptx.to_ptx import check_nvvm
from stablexla.targets.gpu.threads import Launch, kernel_function, shared_buffer
from stablexla.targets.runtime.gpu_driver import device_chips


def scaled() -> sx.XlaComputation:
    b = sx.XlaBuilder("scaled")
    return b.build(b.parameter(0, sx.f32[100]) * 2)


@pytest.fixture(autouse=True)
def _says_nothing(capfd: pytest.CaptureFixture[str]) -> object:
    """Nothing is printed, neither by us nor by LLVM."""
    yield
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize(
    ("target", "said", "hint"),
    [
        ("gpu:sm_91", "there is no chip 'sm_91'", "sm_90"),
        ("gpu:h100", "there is no chip 'h100'", "sm_"),
        ("gpu:sm_100,ptx80", "sm_100 needs PTX 8.6, not 8.0", "ptx=86"),
        ("gpu:sm_90,ptx99", "there is no version 99 of PTX", "80 for PTX 8.0"),
        ("gpu:sm_90,ptx12", "there is no version 12 of PTX", "80 for PTX 8.0"),
        ("gpu:sm_90,fast", "there is no target 'gpu:sm_90,fast'", "gpu:sm_90"),
    ],
)
def test_targets(target: str, said: str, hint: str) -> None:
    with pytest.raises(sx.CompileError) as raised:
        sx.compile(scaled(), target=target)
    assert said in str(raised.value)
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("shared", "threads", "said"),
    [
        (1 << 20, 64, "its blocks share 1048576 bytes; those of sm_75 can share 65536"),
        ((64 << 10) + 1, 64, "its blocks share 65537 bytes"),
        (0, 1056, "a block has at most 1024 threads, not 1056"),
    ],
)
def test_kernels_that_ask_for_too_much(shared: int, threads: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(kernel: Kernel, chip: GpuName) -> object:
        with kernel_function(kernel, Launch(1, threads, shared)):
            if shared:
                shared_buffer(ir.F32Type.get(), 4, 0)
        return emitters.Emitted(1, 1)

    monkeypatch.setitem(emitters.EMITTERS, "loop", [greedy])
    with pytest.raises(sx.CompileError, match=f"loop_0_impl: {said}"):
        sx.compile(scaled(), target="gpu:sm_75")


def test_the_limits_are_those_of_known_chips() -> None:
    assert set(SHARED_KIB) <= {compute_capability(chip) for chip in CHIPS}
    assert shared_limit("sm_75") == 65536
    assert shared_limit("sm_90a") == shared_limit("sm_90") == 232448
    assert shared_limit("sm_89") == 101376


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%r = llvm.intr.sin(%x) : (f32) -> f32", "llvm.intr.sin (1x)"),
        ('%r = llvm.call_intrinsic "llvm.pow"(%x, %x) : (f32, f32) -> f32', "llvm.pow (1x)"),
        (
            '%r = llvm.call_intrinsic "llvm.x86.sse.rcp.ss"(%v) : (vector<4xf32>) -> vector<4xf32>',
            "llvm.x86.sse.rcp.ss",
        ),
        ("%r = llvm.call @expf(%x) : (f32) -> f32", "llvm.call @expf (1x)"),
        ("%r = llvm.fptosi %x : f32 to i128", "llvm.fptosi (1x)"),
        ("%r = llvm.fpext %x : f32 to f128", "llvm.fpext (1x)"),
        ("%r = arith.addf %x, %x : f32", "arith.addf (1x)"),
    ],
)
def test_what_has_no_instruction(line: str, said: str) -> None:
    """LLVM would end the process, or leave a function that nobody has."""
    text = f"""
    module attributes {{gpu.container_module}} {{
      gpu.module @kernels {{
        llvm.func @expf(f32) -> f32
        llvm.func @kernel(%x: f32, %v: vector<4xf32>) {{
          {line}
          llvm.return
        }}
      }}
    }}
    """
    with upstream_context(), ir.Location.unknown(), pytest.raises(sx.CompileError) as raised:
        check_nvvm(ir.Module.parse(text))
    assert "left over: " in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.skipif(bool(device_chips()), reason="there is a driver")
def test_without_a_driver() -> None:
    executable = sx.compile(scaled(), target="gpu:sm_80")
    with pytest.raises(sx.ExecutionError, match="no CUDA driver"):
        executable(np.ones(100, np.float32))


def test_an_operation_that_nobody_has() -> None:
    b = sx.XlaBuilder("unknown")
    program = b.build(sx.custom_call("nobody_has_this", (b.parameter(0, sx.f32[4]),), sx.f32[4]))
    with pytest.raises(sx.CompileError, match="there is no target 'nobody_has_this'"):
        sx.compile(program, target="gpu:sm_80")


def test_shapes_that_are_not_known() -> None:
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %0 = stablehlo.add %x, %x : tensor<?xf32>
      return %0 : tensor<?xf32>
    }"""
    executable = sx.compile(text, target="gpu:sm_80")
    with pytest.raises(sx.CompileError, match="known"):
        executable.ir("ptx")
    assert ".entry" in executable.specialize([(8,)]).ir("ptx")
