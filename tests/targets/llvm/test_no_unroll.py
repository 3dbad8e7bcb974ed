"""Loops that LLVM is told not to unroll, and those whose vectors are aligned on the stack."""

from __future__ import annotations

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import upstream_context
from stablexla.targets.llvm.no_unroll import FRAMED, ROLLED, keep_loops_rolled

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


@pytest.mark.parametrize(
    ("name", "size", "has_call", "is_framed"),
    [
        ("loop_0_impl", FRAMED() + 1, True, True),
        ("loop_0_impl", FRAMED(), True, False),
        ("loop_0_impl", FRAMED() + 1, False, False),
        ("math_sin", FRAMED() + 1, True, False),  # a function of the library, whose frame would be made at each call
    ],
)
def test_a_long_loop_with_a_call_has_a_frame(name: str, size: int, has_call: bool, is_framed: bool) -> None:
    call = "  llvm.call @other() : () -> ()\n" if has_call else ""
    more = "".join(f"  %x{i} = llvm.mul %i, %n : i64\n" for i in range(size - 4 - has_call))
    text = LOOP.format(name=name, attributes="").replace("  %next", f"{call}{more}  %next")
    with upstream_context():
        module = ir.Module.parse(f"llvm.func @other()\n{text}")
        keep_loops_rolled(module)
        assert module.operation.verify()
        assert ("framePointerKind" in str(module)) == is_framed


@pytest.mark.parametrize("vector_bits", [128, 256, None])
def test_the_same_results_with_a_frame_and_without(vector_bits: int | None) -> None:
    """Angles that are huge take the call."""
    draw = np.random.default_rng(1)
    x = (draw.standard_normal(3001) + 1j * draw.standard_normal(3001) * 1e9).astype(np.complex64)
    b = sx.XlaBuilder("exponentials")
    program = b.build(sx.exp(b.parameter(0, sx.c64[3001], name="x")))
    with_frame, without = (
        sx.compile(
            program, options=sx.CompileOptions(vector_bits=vector_bits, choices=f"usual+no-unroll.framed={most}")
        )
        for most in (60, 100_000)
    )
    files = [each._function.keep_alive.object_files() for each in (with_frame, without)]
    assert files[0] != files[1]
    np.testing.assert_array_equal(with_frame(x), without(x))
    np.testing.assert_allclose(with_frame(x), np.exp(x.astype(np.complex128)), rtol=1e-6)
