"""Passes that find nothing to do in a module are not run, by a summary of what it holds."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from stablexla.targets.pipeline.contents import Contents, for_any
from stablexla.targets.pipeline.driver import Watcher, run_pipeline
from stablexla.targets.pipeline.passes import PASSES, module_pass
from stablexla.targets.pipeline.pipelines import Pipeline

TEXT = """
func.func public @main(%x: tensor<?x3xf32>) -> tensor<2xi8> {
  %0 = stablehlo.abs %x : tensor<?x3xf32>
  %1 = stablehlo.constant dense<1> : tensor<2xi8>
  %2 = chlo.erf %0 : tensor<?x3xf32> -> tensor<?x3xf32>
  return %1 : tensor<2xi8>
}
"""
SMALL = "func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }"


class PassByPass(Watcher):
    """A run of which every pass is seen."""

    pass_by_pass = True


def module(text: str) -> hlo_ir.Module:
    return hlo_ir.Module.parse(text, stablehlo_context())


def test_names_and_types() -> None:
    held = Contents.of(module(TEXT))
    assert held.has("stablehlo.abs")
    assert held.has("stablehlo.add", "chlo.")
    assert not held.has("stablehlo.add", "sdy.", "stablehlo")
    assert held.has_type(lambda t: str(t) == "tensor<?x3xf32>")
    assert held.has_type(lambda t: str(t) == "tensor<2xi8>")
    assert not held.has_type(lambda t: "f64" in str(t))


def test_names_that_are_registered_later_count() -> None:
    names: list[str] = []
    looks = for_any(names)
    held = Contents.of(module(TEXT))
    assert not looks(held)
    names.append("stablehlo.abs")
    assert looks(held)


@pytest.fixture
def seen() -> Any:
    """Passes that write down that they ran: one for chlo.erf, one that makes an erf of abs, one for anything."""
    ran: list[str] = []

    @module_pass("test-erf", "notes", side="stablehlo", acts_on=for_any(["chlo.erf"]))
    def erf(module: hlo_ir.Module) -> None:
        ran.append("erf")

    @module_pass("test-make", "makes an erf", side="stablehlo")
    def make(module: hlo_ir.Module) -> None:
        ran.append("make")
        block = module.body.operations[0].regions[0].blocks[0]
        with hlo_ir.InsertionPoint.at_block_begin(block):
            x = block.arguments[0]
            hlo_ir.Operation.create("chlo.erf", results=[x.type], operands=[x])

    yield ran
    del PASSES["test-erf"], PASSES["test-make"]


def test_a_pass_without_anything_to_do_is_skipped(seen: list[str]) -> None:
    run_pipeline(module(SMALL), Pipeline.parse("one: test-erf,test-erf\ntwo: test-erf"))
    assert seen == []
    run_pipeline(module(TEXT), Pipeline.parse("one: test-erf,test-erf\ntwo: test-erf"))
    assert seen == ["erf"] * 3


@pytest.mark.parametrize("watched", [False, True])
def test_what_a_pass_makes_is_seen_by_the_next(seen: list[str], watched: bool) -> None:
    """Also by those who watch: `stablexla-keep-ruled` folds constants, wherever it runs."""
    watcher = PassByPass() if watched else None
    run_pipeline(module(SMALL), Pipeline.parse("one: test-erf,test-make,test-erf\ntwo: test-erf"), watcher=watcher)
    assert seen == ["make", "erf", "erf"]


def test_a_module_is_verified_where_the_last_pass_is_skipped(seen: list[str]) -> None:
    @module_pass("test-break", "breaks main", side="stablehlo")
    def break_(module: hlo_ir.Module) -> None:
        module.body.operations[0].operation.attributes["function_type"] = hlo_ir.TypeAttr.get(
            hlo_ir.FunctionType.get([], [])
        )

    try:
        with pytest.raises(sx.CompileError, match="test-break"):
            run_pipeline(module(SMALL), Pipeline.parse("one: test-break,test-erf"))
    finally:
        del PASSES["test-break"]
    assert seen == []
