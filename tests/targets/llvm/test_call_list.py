"""`main` as a list of calls: which are listed, and programs with a list and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm import call_list, early_code
from stablexla.targets.llvm.call_list import LEAST_CALLS, MOST_ARGUMENTS, RUN_CALLS, list_calls
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
        assert (RUN_CALLS in str(module)) == is_listed


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
