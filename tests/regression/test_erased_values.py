"""Passes that erase operations: what is still used is an error, where MLIR would end the process."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context, upstream_context
from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import walk
from tests import tombstones

ROOT = Path(__file__).parents[2]
TEXT = """func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""
LOOP = """func.func @main(%n: index) -> index {
  %zero = arith.constant 0 : index
  scf.for %i = %zero to %n step %n {
    %sum = arith.addi %i, %i : index
  }
  return %zero : index
}"""


def test_a_computation_with_arrays_that_no_pass_made_a_loop_of() -> None:
    """Grouping takes them out of the body of a kernel, and then erases that."""
    b = sx.XlaBuilder("t")
    x = b.parameter(0, sx.f32[4])
    computation = b.build(sx.reduce(x, b.constant(0.0), lambda a, c: a + sx.broadcast(c, (2,))[0], (0,)))
    pipeline = sx.pipeline("cpu")
    without = pipeline["stablehlo"].passes.replace(",stablexla-expand-computations", "")
    options = sx.CompileOptions(pipeline=pipeline.with_step("stablehlo", without))
    with pytest.raises(sx.CompileError, match=r"linalg\.generic must not be erased: func\.call uses") as error:
        sx.compile(computation, options=options)
    assert error.value.stage == "kernels"
    assert "linalg.generic" in Path(error.value.reproducer).read_text()


def test_a_result_that_is_used() -> None:
    module = hlo_ir.Module.parse(TEXT, stablehlo_context())
    add = next(op for op in module.body.operations[0].regions[0].blocks[0].operations)
    with pytest.raises(sx.CompileError, match=r"stablehlo\.add must not be erased: func\.return uses what it makes"):
        erase(add)
    assert "stablehlo.add" in str(module)


@pytest.mark.parametrize("mlir", [hlo_ir, ir], ids=["jaxlib", "upstream"])
def test_reading_what_is_erased(mlir: Any) -> None:
    """In tests what a rewrite still holds of an erased operation says who erased it."""
    text, context = (TEXT, stablehlo_context()) if mlir is hlo_ir else (LOOP, upstream_context())
    module = mlir.Module.parse(text, context)
    name = "stablehlo.add" if mlir is hlo_ir else "arith.addi"
    op = next(op for op in tombstones.nested(module.operation) if op.name == name)
    value = op.results[0]
    value.replace_all_uses_with(op.operands[0])
    with tombstones.running("my-pass"):
        erase(op)
        assert name not in str(module)
        for read in (lambda: op.operands, lambda: op.name, lambda: value.type, lambda: value.owner, lambda: op in {op}):
            with pytest.raises(tombstones.ErasedError, match="erased by my-pass"):
                read()


def test_a_value_inside_that_is_used_elsewhere() -> None:
    module = ir.Module.parse(LOOP, upstream_context())
    loop = next(op for op in walk(module.operation) if op.name == "scf.for")
    end = next(op for op in walk(module.operation) if op.name == "func.return")
    end.operands[0] = loop.regions[0].blocks[0].operations[0].result
    with pytest.raises(sx.CompileError, match=r"scf\.for must not be erased: func\.return uses what it makes"):
        erase(loop)


def test_what_is_used_inside_alone_is_erased() -> None:
    module = ir.Module.parse(LOOP, upstream_context())
    erase(next(op for op in walk(module.operation) if op.name == "scf.for"))
    assert "scf.for" not in str(module)


@pytest.mark.parametrize("folder", ["dialects", "lowering", "targets", "stablexla"])
def test_no_pass_erases_by_itself(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "erase"
    ]
    assert [line for line in found if not line.startswith("dialects/erasing.py")] == []
