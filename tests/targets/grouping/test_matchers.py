"""The matchers that rewrites and kernels share, on operations as text."""

from __future__ import annotations

from collections.abc import Iterator

import mlir.ir as ir
import pytest

from stablexla.dialects.contexts import upstream_context
from stablexla.lowering.support.operations import only_user, operations_named
from stablexla.targets.grouping import matchers
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.matchers import GENERIC

PRODUCT = """
  %start = linalg.fill ins(%zero : f32) outs(%out : tensor<4x5xf32>) -> tensor<4x5xf32>
  %dot = linalg.generic {
    indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%x, %y : tensor<4x6xf16>, tensor<6x5xf32>) outs(%start : tensor<4x5xf32>) {
  ^bb0(%a: f16, %b: f32, %sum: f32):
BODY
  } -> tensor<4x5xf32>
"""
SUM_OF_PRODUCTS = """
    %c = arith.extf %a : f16 to f32
    %m = arith.mulf %b, %c : f32
    %s = arith.addf %m, %sum : f32
    linalg.yield %s : f32
"""
SUM_OF_SQUARES = SUM_OF_PRODUCTS.replace("%b, %c", "%c, %c")


@pytest.fixture
def context() -> Iterator[None]:
    with upstream_context(), ir.Location.unknown():
        yield


def product(body: str, zero: str = "0.0") -> tuple[ir.Module, ir.Operation]:
    """A module with one sum over products of that body, and the operation."""
    module = ir.Module.parse(f"""
func.func @main(%x: tensor<4x6xf16>, %y: tensor<6x5xf32>, %out: tensor<4x5xf32>) -> tensor<4x5xf32> {{
  %zero = arith.constant {zero} : f32
{PRODUCT.replace("BODY", body)}
  return %dot : tensor<4x5xf32>
}}""")
    return module, operations_named(module.operation, GENERIC)[0]


def test_a_sum_of_products_through_casts_in_any_order(context: None) -> None:
    module, op = product(SUM_OF_PRODUCTS)
    assert matchers.formula_of(op) in matchers.PRODUCTS
    assert classify(op) is Kind.CONTRACTION
    lhs, rhs = matchers.factor_conversions(op) or ()
    assert ([o.name for o in lhs], rhs) == (["arith.extf"], ())
    assert module.operation.verify()


def test_a_sum_of_squares_is_no_product(context: None) -> None:
    module, op = product(SUM_OF_SQUARES)
    assert matchers.formula_of(op) == ("arith.addf", ("arith.mulf", (0,), (0,)), (-1,))
    assert classify(op) is not Kind.CONTRACTION
    assert matchers.factor_conversions(op) is None
    assert module.operation.verify()


@pytest.mark.parametrize("negations", [matchers.LONGEST_BODY - 2, matchers.LONGEST_BODY - 1])
def test_a_long_body_has_no_formula(context: None, negations: int) -> None:
    lines = [
        "    %m0 = arith.negf %b : f32",
        *(f"    %m{n + 1} = arith.negf %m{n} : f32" for n in range(negations - 1)),
    ]
    body = "\n".join([*lines, f"    %s = arith.addf %m{negations - 1}, %sum : f32", "    linalg.yield %s : f32"])
    _, op = product(body)
    assert bool(matchers.formula_of(op)) is (negations + 2 <= matchers.LONGEST_BODY)


@pytest.mark.parametrize(("zero", "starts"), [("0.0", True), ("-0.0", True), ("1.0", False)])
def test_the_start_of_a_sum(context: None, zero: str, starts: bool) -> None:
    _, op = product(SUM_OF_PRODUCTS, zero)
    assert matchers.starts_at_zero(op) is starts
    fill = matchers.fill_of(op)
    assert fill is not None
    assert only_user(fill.results[0]) == op
    assert only_user(op.regions[0].blocks[0].arguments[2]) is not None
    assert matchers.made_by(fill.results[0], GENERIC) is None


@pytest.mark.parametrize(("index", "body", "found"), [
    ("i, j", "arith.extf", ["arith.extf"]),
    ("j, i", "arith.extf", None),
    ("i, j", "math.exp", None),
])  # fmt: skip
def test_a_conversion_in_place(context: None, index: str, body: str, found: list[str] | None) -> None:
    element = "f16" if body == "arith.extf" else "f32"
    suffix = "f16 to f32" if body == "arith.extf" else "f32"
    module = ir.Module.parse(f"""
func.func @main(%x: tensor<4x4x{element}>, %out: tensor<4x4xf32>) -> tensor<4x4xf32> {{
  %0 = linalg.generic {{
    indexing_maps = [affine_map<(i, j) -> ({index})>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  }} ins(%x : tensor<4x4x{element}>) outs(%out : tensor<4x4xf32>) {{
  ^bb0(%a: {element}, %old: f32):
    %1 = {body} %a : {suffix}
    linalg.yield %1 : f32
  }} -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}}""")
    conversion = matchers.converted_in_place(operations_named(module.operation, GENERIC)[0])
    assert (None if conversion is None else [o.name for o in conversion]) == found


def test_program_order_across_regions(context: None) -> None:
    module = ir.Module.parse("""
func.func @main(%p: i1, %x: f32) -> f32 {
  %0 = math.exp %x : f32
  %1 = scf.if %p -> f32 {
    %2 = math.exp %0 : f32
    %3 = math.exp %0 : f32
    scf.yield %3 : f32
  } else {
    %4 = math.exp %0 : f32
    scf.yield %4 : f32
  }
  %5 = math.exp %0 : f32
  return %5 : f32
}""")
    operations = operations_named(module.operation, "math.exp")
    assert matchers.in_program_order([*reversed(operations), operations[1]]) == operations
    branch = operations_named(module.operation, "scf.if")
    assert matchers.in_program_order([operations[-1], operations[1], *branch]) == [
        *branch,
        operations[1],
        operations[-1],
    ]
