// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-write-out-splats)' | FileCheck %s

// A splat, and a constant of equal elements, is a loop that stores a scalar; other constants stay.
// CHECK-LABEL: func.func public @main(
// CHECK-SAME: %[[N:.*]]: f32)
// CHECK-NOT: tensor.splat
// CHECK: linalg.generic {{.*}} ins(%[[N]] : f32) outs(%{{.*}} : tensor<4xf32>)
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: linalg.generic {{.*}} ins(%[[TWO]] : f32) outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK: return
func.func public @main(%n: f32) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) {
  %0 = tensor.splat %n : tensor<4xf32>
  %1 = arith.constant dense<2.0> : tensor<4xf32>
  %2 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<2xf32>
}
