"""The reader of a linalg.generic's loops, on operations as text."""

from __future__ import annotations

import mlir.ir as ir
import pytest

from stablexla.dialects.contexts import upstream_context
from stablexla.lowering.support.operations import inline_body, walk
from stablexla.targets.grouping.loops import is_generic, loops_of, reads_outputs, strides_of

SUM = """
func.func @f(%x: tensor<4x6xf32>, %y: tensor<6xf32>, %s: f32, %out: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> ()>,
                     affine_map<(i, j) -> (i)>],
    iterator_types = ["parallel", "reduction"]
  } ins(%x, %y, %s : tensor<4x6xf32>, tensor<6xf32>, f32) outs(%out : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %total: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %1, %total : f32
    linalg.yield %2 : f32
  } -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""
MAP = """
func.func @f(%x: tensor<6x4xf32>, %out: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (INDEX, i)>, affine_map<(i, j) -> (i, j)>],
    iterator_types = ["parallel", "parallel"]
  } ins(%x : tensor<6x4xf32>) outs(%out : tensor<4x6xf32>) {
  ^bb0(%a: f32, %old: f32):
    %1 = math.exp %a : f32
    linalg.yield %1 : f32
  } -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
"""


@pytest.fixture
def generic(request):
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.parse(request.param)
        yield next(op for op in walk(module.operation) if is_generic(op))


@pytest.mark.parametrize("generic", [SUM], indirect=True)
def test_reduction(generic):
    loops = loops_of(generic)
    assert (loops.extents, loops.reduced, loops.kept, loops.num_inputs) == ((4, 6), (False, True), (4,), 3)
    assert strides_of(generic) == [(6, 1), (0, 1), (0, 0), (1, 0)]
    assert not loops.in_order
    assert reads_outputs(generic)


@pytest.mark.parametrize("generic", [MAP.replace("INDEX", "j")], indirect=True)
def test_transpose(generic):
    assert loops_of(generic).extents == (4, 6)
    assert strides_of(generic) == [(1, 4), (6, 1)]
    assert loops_of(generic).in_order
    assert not reads_outputs(generic)


@pytest.mark.parametrize("generic", [MAP.replace("INDEX", "5 - j")], indirect=True)
def test_a_reversed_index_has_no_stride(generic):
    assert loops_of(generic).extents == (4, 6)
    assert strides_of(generic) is None


@pytest.mark.parametrize("generic", [SUM], indirect=True)
def test_a_body_is_inlined_on_other_values(generic):
    x = generic.parent.regions[0].blocks[0].arguments[2]
    with ir.InsertionPoint(generic):
        (value,) = inline_body(generic, [x, x, x, x])
    assert value.owner.name == "arith.addf"
    assert [v.owner.name for v in list(value.owner.operands)[:1]] == ["arith.mulf"]
    assert value.owner.operands[1] == x
