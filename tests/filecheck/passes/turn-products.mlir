// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-turn-products)' | FileCheck %s

// A product of which only the transpose is read is computed transposed, from the same operands.
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG: #[[Y:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-DAG: #[[R:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func public @main
// CHECK: %[[PRODUCT:.*]] = linalg.generic {indexing_maps = [#[[X]], #[[Y]], #[[R]]]
// CHECK-SAME: ins(%arg0, %arg1 : tensor<4x5xf32>, tensor<5x6xf32>) outs(%{{.*}} : tensor<6x4xf32>)
// CHECK-NOT: linalg.generic
// CHECK: return %[[PRODUCT]] : tensor<6x4xf32>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func public @main(%x: tensor<4x5xf32>, %y: tensor<5x6xf32>) -> tensor<6x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %s = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<4x5xf32>, tensor<5x6xf32>) outs(%s : tensor<4x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<4x6xf32>
  %t = tensor.empty() : tensor<6x4xf32>
  %1 = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x6xf32>) outs(%t : tensor<6x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}

// -----

// One that is read as it is, too, is left alone.
// CHECK-LABEL: // -----
// CHECK: %[[PRODUCT:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x6xf32>)
// CHECK: %[[TURNED:.*]] = linalg.generic {{.*}} ins(%[[PRODUCT]] : tensor<4x6xf32>)
// CHECK: return %[[PRODUCT]], %[[TURNED]]
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func public @main(%x: tensor<4x5xf32>, %y: tensor<5x6xf32>) -> (tensor<4x6xf32>, tensor<6x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %s = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %0 = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<4x5xf32>, tensor<5x6xf32>) outs(%s : tensor<4x6xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<4x6xf32>
  %t = tensor.empty() : tensor<6x4xf32>
  %1 = linalg.generic {indexing_maps = [#turned, #id], iterator_types = ["parallel", "parallel"]} ins(%0 : tensor<4x6xf32>) outs(%t : tensor<6x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<6x4xf32>
  return %0, %1 : tensor<4x6xf32>, tensor<6x4xf32>
}
