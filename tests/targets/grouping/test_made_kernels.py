"""Kernels that lowering rules make: what they capture, that equal ones are shared, effects that stay in order."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlir.ir as ir
import numpy as np
import pytest
from mlir.dialects import arith, func, scf, tensor

import stablexla as sx
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import EFFECT, KIND, kernel
from stablexla.lowering.support.operations import main_of, walk
from stablexla.lowering.support.registry import RULES, Registration
from stablexla.lowering.support.storage import constant
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.emitters import EMITTERS
from stablexla.targets.host.symbol_table import SYMBOLS
from stablexla.targets.host.symbols import declare, pointer_to, pointer_type
from tests.targets.grouping.stages import outlined

# An operation to give other rules to; none of the programs below needs its meaning.
STAND_IN = "stablehlo.cbrt"
TWICE = f"""func.func public @main(%x: tensor<1000xf32>) -> (tensor<1000xf32>, tensor<1000xf32>) {{
  %0 = {STAND_IN} %x : tensor<1000xf32>
  %1 = stablehlo.add %0, %x : tensor<1000xf32>
  %2 = {STAND_IN} %1 : tensor<1000xf32>
  return %0, %2 : tensor<1000xf32>, tensor<1000xf32>
}}"""


@contextmanager
def lowered_by(rule: Callable[..., list[ir.Value]], name: str = STAND_IN) -> Iterator[None]:
    """Another rule for an operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(RULES, name, Registration(rule, "test"))
        yield


@dataclass(frozen=True)
class Doubled:
    """The configuration of the kernels below."""

    factor: int
    names: tuple[str, ...]


def doubled(ctx: LoweringContext, x: ir.Value, **options: bool) -> list[ir.Value]:
    """Twice each element; the factor is made outside the kernel, of a constant."""
    index, f32 = ir.IndexType.get(), ir.F32Type.get()
    (size,) = ctx.result.shape
    factor = arith.addf(constant(f32, 1.0), constant(f32, 1.0))

    def body(array: ir.Value) -> ir.Value:
        low, high, step = (constant(index, n) for n in (0, size, 1))
        loop = scf.ForOp(low, high, step, [tensor.empty([size], f32)])
        with ir.InsertionPoint(loop.body):
            element = tensor.extract(array, [loop.induction_variable])
            place = [loop.induction_variable]
            scf.YieldOp([tensor.insert(arith.mulf(element, factor), loop.inner_iter_args[0], place)])
        return loop.results[0]

    return kernel(ctx, "doubled", [x], body, config=Doubled(2, ("a", "b")), **options)


def calls(module: ir.Module) -> list[ir.Operation]:
    """The calls in main, in order."""
    return [op for op in walk(main_of(module)) if op.name == "func.call"]


def test_the_body_takes_what_it_uses_from_outside() -> None:
    with lowered_by(doubled):
        x = np.arange(1000, dtype=np.float32)
        first, second = sx.compile(TWICE)(x)
        np.testing.assert_array_equal(first, 2 * x)
        np.testing.assert_array_equal(second, 6 * x)


def test_equal_kernels_are_one_function() -> None:
    with lowered_by(doubled):
        module = outlined(TWICE)
    functions = [view.operation for view in module.body.operations if KIND in view.operation.attributes]
    assert [ir.StringAttr(f.attributes[KIND]).value for f in functions] == ["doubled", "loop"]
    callees = [ir.FlatSymbolRefAttr(call.attributes["callee"]).value for call in calls(module)]
    assert callees == ["doubled_0", "loop_0", "doubled_0"]


def test_a_kernel_nobody_reads_goes() -> None:
    unread = TWICE.replace("return %0, %2", "return %0, %0")
    with lowered_by(doubled):
        module = outlined(unread)
    assert len(calls(module)) == 1


def test_one_with_an_effect_stays() -> None:
    # CSE takes the stand-in away itself when nobody reads it; a custom call with a side effect it must leave.
    call = "stablehlo.custom_call @any(%{}) {{has_side_effect = true}} : (tensor<1000xf32>) -> tensor<1000xf32>"
    unread = TWICE.replace("return %0, %2", "return %x, %x")
    for operand in ("x", "1"):
        unread = unread.replace(f"{STAND_IN} %{operand} : tensor<1000xf32>", call.format(operand))
    with lowered_by(lambda ctx, x: doubled(ctx, x, effect=True), "stablehlo.custom_call"):
        module = outlined(unread)
    assert [EFFECT in call.attributes for call in calls(module)] == [True, False, True]


def test_independent_turns_run_on_threads() -> None:
    big = TWICE.replace("1000", "100000")
    with lowered_by(lambda ctx, x: doubled(ctx, x, independent=True)):
        executable = sx.compile(big)
        x = np.arange(100000, dtype=np.float32)
        np.testing.assert_array_equal(executable(x)[1], 6 * x)
        made = next(k for k in executable.kernels if k.kind == "doubled")
    assert made.items == 100000


def test_an_emitter_reads_the_configuration_and_calls_c(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.POINTER(ctypes.c_float))
    def reverse(out: ctypes.Array[ctypes.c_float], array: ctypes.Array[ctypes.c_float]) -> None:
        for i in range(1000):
            out[i] = array[999 - i]

    def emit(made: Kernel, target: CpuTarget) -> Emitted:
        seen.append(made.config(Doubled))
        callee = declare(made.func.operation, "test_reverse", [pointer_type()] * 2)
        with made.phase(target) as arguments:
            func.CallOp([], callee, [pointer_to(b.ssa) for b in (arguments.results[0], arguments.inputs[0])])
        return Emitted(items=1, grain=1)

    monkeypatch.setitem(EMITTERS, "doubled", [emit])
    monkeypatch.setitem(SYMBOLS, "test_reverse", lambda: ctypes.cast(reverse, ctypes.c_void_p).value or 0)
    with lowered_by(doubled):
        x = np.arange(1000, dtype=np.float32)
        np.testing.assert_array_equal(sx.compile(TWICE)(x)[0], x[::-1])
    assert seen == [Doubled(2, ("a", "b"))]


def test_an_unknown_c_function_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def emit(made: Kernel, target: CpuTarget) -> Emitted:
        callee = declare(made.func.operation, "nowhere_defined", [])
        with made.phase(target):
            func.CallOp([], callee, [])
        return Emitted(items=1, grain=1)

    monkeypatch.setitem(EMITTERS, "doubled", [emit])
    with lowered_by(doubled), pytest.raises(sx.CompileError, match="nowhere_defined"):
        sx.compile(TWICE)
