// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-turn-narrow-products{vector-bits=256})' | FileCheck %s

// Two columns, and a left operand whose rows lie side by side: the product is computed transposed, and turned back.
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG: #[[Y:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-DAG: #[[R:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: #[[TURN:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func public @main
// CHECK: %[[PRODUCT:.*]] = linalg.generic {indexing_maps = [#[[X]], #[[Y]], #[[R]]]
// CHECK-SAME: ins(%arg0, %arg1 : tensor<5x48xf32>, tensor<5x2xf32>) outs(%{{.*}} : tensor<2x48xf32>)
// CHECK: %[[BACK:.*]] = linalg.generic {indexing_maps = [#[[TURN]], #{{.*}}]
// CHECK-SAME: ins(%[[PRODUCT]] : tensor<2x48xf32>)
// CHECK: return %[[BACK]] : tensor<48x2xf32>
#x = affine_map<(d0, d1, d2) -> (d2, d0)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<5x48xf32>, %y: tensor<5x2xf32>) -> tensor<48x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<48x2xf32>
  %s = linalg.fill ins(%zero : f32) outs(%e : tensor<48x2xf32>) -> tensor<48x2xf32>
  %0 = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<5x48xf32>, tensor<5x2xf32>) outs(%s : tensor<48x2xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<48x2xf32>
  return %0 : tensor<48x2xf32>
}

// -----

// The rows of the left operand are far apart: the product stays.
// CHECK-LABEL: func.func public @main
// CHECK: linalg.generic
// CHECK-NOT: linalg.generic
// CHECK: return %{{.*}} : tensor<48x2xf32>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<48x5xf32>, %y: tensor<5x2xf32>) -> tensor<48x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<48x2xf32>
  %s = linalg.fill ins(%zero : f32) outs(%e : tensor<48x2xf32>) -> tensor<48x2xf32>
  %0 = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<48x5xf32>, tensor<5x2xf32>) outs(%s : tensor<48x2xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<48x2xf32>
  return %0 : tensor<48x2xf32>
}
