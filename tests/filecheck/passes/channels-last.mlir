// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-channels-last)' | FileCheck %s

// Three convolutions are enough; one transpose of the image, one of the result. Broadcasts are made channels-last.
// CHECK-LABEL: func.func @main
// CHECK: %[[X:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 3, 1] : (tensor<1x4x8x8xf32>) -> tensor<1x8x8x4xf32>
// CHECK: %[[FIRST:.*]] = stablehlo.convolution(%[[X]], %arg1) dim_numbers = [b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]
// CHECK: %[[BIAS:.*]] = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<16xf32>) -> tensor<1x8x8x16xf32>
// CHECK: %[[SUM:.*]] = stablehlo.add %[[FIRST]], %[[BIAS]] : tensor<1x8x8x16xf32>
// CHECK: stablehlo.pad %[[SUM]], %{{.*}}, low = [0, 1, 0, 0], high = [0, 1, 2, 0], interior = [0, 0, 0, 0]
// CHECK: stablehlo.convolution({{.*}}[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]
// CHECK: %[[LAST:.*]] = stablehlo.convolution({{.*}}[b, 0, 1, f]x[o, i, 0, 1]->[b, 0, 1, f]
// CHECK: %[[BACK:.*]] = stablehlo.transpose %[[LAST]], dims = [0, 3, 1, 2]
// CHECK: return %[[BACK]]
func.func @main(%x: tensor<1x4x8x8xf32>, %v: tensor<16x4x1x1xf32>, %b: tensor<16xf32>, %w: tensor<16x16x1x1xf32>, %u: tensor<2x16x1x1xf32>) -> tensor<1x2x10x10xf32> {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<16x4x1x1xf32>) -> tensor<1x16x8x8xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<16xf32>) -> tensor<1x16x8x8xf32>
  %2 = stablehlo.add %0, %1 : tensor<1x16x8x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %3 = stablehlo.pad %2, %zero, low = [0, 0, 1, 0], high = [0, 0, 1, 2], interior = [0, 0, 0, 0] : (tensor<1x16x8x8xf32>, tensor<f32>) -> tensor<1x16x10x10xf32>
  %4 = stablehlo.convolution(%3, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x16x10x10xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x10x10xf32>
  %5 = stablehlo.convolution(%4, %u) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x16x10x10xf32>, tensor<2x16x1x1xf32>) -> tensor<1x2x10x10xf32>
  return %5 : tensor<1x2x10x10xf32>
}

// -----

// What widens an image follows the transpose, which is of the narrower array.
// CHECK-LABEL: func.func @bytes
// CHECK: %[[X:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 3, 1] : (tensor<1x4x8x8xui8>) -> tensor<1x8x8x4xui8>
// CHECK: %[[WIDE:.*]] = stablehlo.convert %[[X]] : (tensor<1x8x8x4xui8>) -> tensor<1x8x8x4xf32>
// CHECK: stablehlo.convolution(%[[WIDE]]
func.func @bytes(%x: tensor<1x4x8x8xui8>, %v: tensor<16x4x1x1xf32>, %w: tensor<16x16x1x1xf32>) -> tensor<1x16x8x8xf32> {
  %x0 = stablehlo.convert %x : (tensor<1x4x8x8xui8>) -> tensor<1x4x8x8xf32>
  %0 = stablehlo.convolution(%x0, %v) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x8x8xf32>, tensor<16x4x1x1xf32>) -> tensor<1x16x8x8xf32>
  %1 = stablehlo.convolution(%0, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x16x8x8xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x8xf32>
  %2 = stablehlo.convolution(%1, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x16x8x8xf32>, tensor<16x16x1x1xf32>) -> tensor<1x16x8x8xf32>
  return %2 : tensor<1x16x8x8xf32>
}
