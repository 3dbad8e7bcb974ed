"""Combiners that lowering rules hand on: what they read, where they may be inlined, and what is missing."""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
import pytest

from stablexla.dialects.contexts import upstream_context
from stablexla.dialects.errors import CompileError
from stablexla.lowering.support.kernels import KIND
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.kernel import Kernel

KERNEL = """
func.func private @scan(%x: tensor<8xf32>, %k: f32) -> tensor<8xf32>
    attributes {stablexla.kernel = "scan", stablexla.combiner = {function = @combine, uniforms = [1]}} {
  return %x : tensor<8xf32>
}
"""


Read = Callable[..., ElementCombiner]


@pytest.fixture
def combiner() -> Read:
    """Reads the combiner of a kernel from its body: %old and %new are elements, and %k a uniform."""
    alive = []

    def read(body: str, results: str = "f32") -> ElementCombiner:
        head = f"func.func private @combine(%old: f32, %new: f32, %k: f32) -> {results}"
        module, kernel = parsed(f"{head} attributes {{stablexla.combiner}} {{ {body} }}")
        alive.append(module)
        return ElementCombiner.of(kernel)

    return read


def parsed(combiner: str) -> tuple[ir.Module, Kernel]:
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(combiner + KERNEL)
        return module, Kernel(next(view for view in module.body.operations if KIND in view.operation.attributes))


def test_elements_and_uniforms(combiner: Read) -> None:
    body = """
        %0 = arith.mulf %old, %k : f32
        %1 = arith.addf %0, %new : f32
        return %1, %new : f32, f32"""
    found = combiner(body, "(f32, f32)")
    assert len(found.arguments) == 2
    assert [number for _, number in found.uniforms] == [1]
    assert [op.name for op in found.operations] == ["arith.mulf", "arith.addf"]
    assert found.elements_read() == {0, 1}
    assert found.elements_read([found.results[1]]) == {1}


def test_an_element_that_is_overwritten_is_not_read(combiner: Read) -> None:
    assert combiner("return %new : f32").elements_read() == {1}


def test_branches_read_what_their_regions_read(combiner: Read) -> None:
    found = combiner("""
        %c = arith.cmpf ogt, %new, %k : f32
        %0 = scf.if %c -> f32 { scf.yield %old : f32 } else { scf.yield %new : f32 }
        return %0 : f32""")
    assert found.elements_read() == {0, 1}
    assert found.is_scalar
    assert not found.fits_lanes


@pytest.mark.parametrize(
    ("body", "is_scalar", "fits_lanes"),
    [
        ("%0 = math.exp %old : f32\nreturn %0 : f32", True, True),
        (
            "%0 = complex.create %old, %new : complex<f32>\n%1 = complex.re %0 : complex<f32>\nreturn %1 : f32",
            True,
            False,
        ),
        ("%0 = tensor.from_elements %old : tensor<1xf32>\nreturn %old : f32", False, False),
    ],
)
def test_where_it_may_be_inlined(combiner: Read, body: str, is_scalar: bool, fits_lanes: bool) -> None:
    found = combiner(body)
    assert (found.is_scalar, found.fits_lanes) == (is_scalar, fits_lanes)


@pytest.mark.parametrize("function", ["", "func.func private @other(f32, f32, f32) -> f32"])
def test_one_that_is_not_there(function: str) -> None:
    _module, kernel = parsed(function)
    with pytest.raises(CompileError, match=r"@scan has no stablexla\.combiner that is a function"):
        ElementCombiner.of(kernel)
