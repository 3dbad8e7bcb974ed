"""Loops that LLVM is told not to unroll."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm.no_unroll import ROLLED, keep_loops_rolled

LOOP = """
llvm.func @{name}(%n: i64) {attributes} {{
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  llvm.br ^head(%zero : i64)
^head(%i: i64):
  %more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %more, ^body, ^end
^body:
  %next = llvm.add %i, %one : i64
  llvm.br ^head(%next : i64)
^end:
  llvm.return
}}
"""


def test_only_branches_back_of_marked_functions_are_annotated() -> None:
    with upstream_context():
        marked = LOOP.format(name="marked", attributes=f"attributes {{{ROLLED}}}")
        module = ir.Module.parse(marked + LOOP.format(name="other", attributes=""))
        keep_loops_rolled(module)
        first, second = (str(view.operation) for view in module.body.operations)
        assert module.operation.verify()
    assert [line.count("loop_annotation =") for line in first.splitlines() if "llvm.br" in line] == [0, 1]
    assert ROLLED not in first
    assert "annotation" not in second
