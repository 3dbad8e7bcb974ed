"""Rewrite patterns and the driver that applies them: which operations a pattern sees, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlir.ir as ir
import pytest

from stablexla.dialects.contexts import upstream_context
from stablexla.lowering.support.operations import main_of, operations_named
from stablexla.targets.grouping.patterns import apply_pattern
from stablexla.targets.pipeline.passes import find_pass

PROGRAM = """
func.func @main(%p: i1, %x: f32) -> f32 {
  %0 = math.exp %x : f32
  %1 = scf.if %p -> f32 {
    %2 = math.log %0 : f32
    scf.yield %2 : f32
  } else {
    scf.yield %0 : f32
  }
  %3 = math.exp %1 : f32
  return %3 : f32
}"""


@pytest.fixture
def main() -> Iterator[ir.Operation]:
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(PROGRAM)
        yield main_of(module)
        assert module.operation.verify()


def test_a_pattern_sees_its_roots_in_order_and_no_others(main: ir.Operation) -> None:
    seen: list[str] = []

    def refuse(op: ir.Operation) -> Sequence[ir.Value] | None:
        seen.append(op.name)
        return None

    assert not apply_pattern(main, ["math.exp", "math.log"], refuse)
    assert seen == ["math.exp", "math.log", "math.exp"]


def test_results_are_replaced_and_what_is_made_is_not_visited(main: ir.Operation) -> None:
    def twice(op: ir.Operation) -> Sequence[ir.Value]:
        (inner,) = (ir.Operation.create("math.exp", results=[v.type], operands=[v]).result for v in op.operands)
        return [ir.Operation.create("math.sin", results=[inner.type], operands=[inner]).result]

    assert apply_pattern(main, ["math.exp"], twice)
    assert [op.operands[0].owner.name for op in operations_named(main, "math.sin")] == ["math.exp"] * 2
    assert len(operations_named(main, "math.exp")) == 2


def test_a_change_in_place_keeps_the_operation(main: ir.Operation) -> None:
    def doubled(op: ir.Operation) -> Sequence[ir.Value] | None:
        if op.parent.name != "scf.if":
            return None
        op.operands[0] = main.regions[0].blocks[0].arguments[1]
        return ()

    assert apply_pattern(main, ["math.log"], doubled)
    (log,) = operations_named(main, "math.log")
    assert log.operands[0] == main.regions[0].blocks[0].arguments[1]


def test_an_error_of_a_pattern_is_its_users(main: ir.Operation) -> None:
    def fail(op: ir.Operation) -> Sequence[ir.Value] | None:
        raise ValueError(op.name)

    with pytest.raises(ValueError, match=r"math\.log"):
        apply_pattern(main, ["math.log"], fail)


def test_a_pass_of_a_pattern_has_its_options() -> None:
    assert list(find_pass("stablexla-turn-narrow-products").options) == ["vector-bits"]
    assert not find_pass("stablexla-turn-products").options
