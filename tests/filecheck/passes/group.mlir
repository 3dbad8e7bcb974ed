// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-group)' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-group{alone=true})' | FileCheck %s --check-prefix=ALONE

// Two element-wise operations are one group, and so is the sum over each row that reads them in place. What makes no
// pass over memory has no group.
// CHECK-LABEL: func.func @main
// CHECK-NOT: stablexla.group
// CHECK: linalg.generic {{.*}} attrs = {stablexla.group = "row.0"}
// CHECK: math.exp
// CHECK: linalg.generic {{.*}} attrs = {stablexla.group = "row.0"}
// CHECK: arith.negf
// CHECK: linalg.fill ins(%{{.*}} : f32) outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
// CHECK: linalg.generic {{.*}} attrs = {stablexla.group = "row.0"}
// CHECK: arith.addf
// CHECK: tensor.collapse_shape %{{.*}} {{\[\[}}0, 1]] : tensor<4x8xf32> into tensor<32xf32>
// CHECK-NOT: stablexla.group
// ALONE-LABEL: func.func @main
// ALONE: stablexla.group = "loop.0"
// ALONE: stablexla.group = "loop.1"
// ALONE: stablexla.group = "row.2"
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @main(%x: tensor<4x8xf32>) -> (tensor<32xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = math.exp %a : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.negf %a : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  %r = tensor.empty() : tensor<4xf32>
  %s = linalg.fill ins(%zero : f32) outs(%r : tensor<4xf32>) -> tensor<4xf32>
  %2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<4x8xf32>) outs(%s : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %b, %a : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  %3 = tensor.collapse_shape %1 [[0, 1]] : tensor<4x8xf32> into tensor<32xf32>
  return %3, %2 : tensor<32xf32>, tensor<4xf32>
}

// -----

// What reads a group's elements at other places is no part of it, and starts another.
// CHECK-LABEL: // -----
// CHECK: attrs = {stablexla.group = "loop.0"}
// CHECK: math.exp
// CHECK: attrs = {stablexla.group = "loop.1"}
// CHECK: arith.negf
#id = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = math.exp %a : f32
    linalg.yield %c : f32
  } -> tensor<8x8xf32>
  %1 = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.negf %a : f32
    linalg.yield %c : f32
  } -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
