// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --stage=kernels | FileCheck %s --check-prefix=KERNELS

// Loops over the result, then over the window and the input features. Padding is never in memory: where the window lies
// beside lhs a zero is chosen.
// CHECK-DAG: #[[RHS:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d3, d4, d5, d2)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2)>
// CHECK: linalg.generic {indexing_maps = [#[[RHS]], #[[OUT]]]
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
// CHECK-SAME: ins(%arg1 : tensor<3x3x2x4xf32>)
// CHECK-SAME: stablexla.convolution = {
// CHECK: %[[INSIDE:.*]] = arith.andi
// CHECK: %[[X:.*]] = tensor.extract %arg0
// CHECK: %[[CHOSEN:.*]] = arith.select %[[INSIDE]], %[[X]], %{{.*}} : f32
// CHECK: arith.mulf %[[CHOSEN]]
// CHECK: arith.addf
// What follows is computed where the sums are written.
// KERNELS: func.func private @convolution_0
// KERNELS-COUNT-2: linalg.generic
// KERNELS: func.func public @main
// KERNELS-NEXT: call @convolution_0
func.func public @main(%x: tensor<1x8x8x2xf32>, %w: tensor<3x3x2x4xf32>) -> tensor<1x8x8x4xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x8x8x2xf32>, tensor<3x3x2x4xf32>) -> tensor<1x8x8x4xf32>
  %1 = stablehlo.negate %0 : tensor<1x8x8x4xf32>
  return %1 : tensor<1x8x8x4xf32>
}

// -----

// Dilation of lhs: a window's element meets one of lhs where the remainder is 0.
// CHECK-LABEL: // -----
// CHECK: linalg.generic
// CHECK: arith.remui
// CHECK: arith.divui
// CHECK: tensor.extract %arg0
// KERNELS-LABEL: // -----
func.func public @main(%x: tensor<2x5x3xf32>, %w: tensor<4x3x6xf32>) -> tensor<2x8x6xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
    window = {pad = [[1, 1]], lhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x5x3xf32>, tensor<4x3x6xf32>) -> tensor<2x8x6xf32>
  return %0 : tensor<2x8x6xf32>
}

// -----

// Windows of one element, and windows as large as lhs, are products of matrices.
// CHECK-LABEL: // -----
// CHECK-NOT: stablexla.convolution
// CHECK-COUNT-2: linalg.generic
// KERNELS-LABEL: // -----
// KERNELS: func.func private @contraction_0
// KERNELS: func.func private @contraction_1
func.func public @main(%x: tensor<2x5x3xf32>, %w: tensor<1x3x6xf32>, %v: tensor<5x3x6xf32>)
    -> (tensor<2x5x6xf32>, tensor<2x1x6xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x5x3xf32>, tensor<1x3x6xf32>) -> tensor<2x5x6xf32>
  %1 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x5x3xf32>, tensor<5x3x6xf32>) -> tensor<2x1x6xf32>
  return %0, %1 : tensor<2x5x6xf32>, tensor<2x1x6xf32>
}
