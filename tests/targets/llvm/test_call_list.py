"""`main` as a list of calls: which are listed, and programs with a list and without."""

from __future__ import annotations

from pathlib import Path

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm import call_list, early_code
from stablexla.targets.llvm.call_list import LEAST_CALLS, MOST_ARGUMENTS, RUN_CALLS, list_calls
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
