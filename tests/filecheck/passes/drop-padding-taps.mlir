// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-drop-padding-taps)' | FileCheck %s

// Weights that are not known: the dropped ones add zero, or NaN, to each feature.
// CHECK-LABEL: func.func @unknown
// CHECK: %[[PART:.*]] = stablehlo.slice %arg1 [1:2, 1:2, 0:4, 0:8]
// CHECK: %[[PRODUCTS:.*]] = stablehlo.convolution(%arg0, %[[PART]]) {{.*}} window = {pad = {{\[\[}}0, 0], [0, 0]], rhs_dilate = [12, 12]}
// CHECK: %[[KEPT:.*]] = stablehlo.constant dense<{{\[\[}}false, false, false], [false, true, false], [false, false, false]]>
// CHECK: %[[WHERE:.*]] = stablehlo.broadcast_in_dim %[[KEPT]], dims = [0, 1]
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<0.0{{.*}}> : tensor<3x3x4x8xf32>
// CHECK: %[[DROPPED:.*]] = stablehlo.multiply %arg1, %[[ZERO]]
// CHECK: stablehlo.select %[[WHERE]], %[[ZERO]], %[[DROPPED]]
// CHECK: %[[SUMS:.*]] = stablehlo.reduce({{.*}}) applies stablehlo.add across dimensions = [0, 1, 2]
// CHECK: %[[OF_ALL:.*]] = stablehlo.broadcast_in_dim %[[SUMS]], dims = [3]
// CHECK: stablehlo.add %[[PRODUCTS]], %[[OF_ALL]]
func.func @unknown(%x: tensor<2x10x10x4xf32>, %w: tensor<3x3x4x8xf32>) -> tensor<2x10x10x8xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[12, 12], [12, 12]], rhs_dilate = [12, 12]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x10x10x4xf32>, tensor<3x3x4x8xf32>) -> tensor<2x10x10x8xf32>
  return %0 : tensor<2x10x10x8xf32>
}

// -----

// A tap that meets one element is kept; so are all between the first and the last.
// CHECK-LABEL: func.func @met
// CHECK: stablehlo.convolution(%arg0, %arg1)
// CHECK-NOT: stablehlo.add
func.func @met(%x: tensor<2x13x13x4xf32>, %w: tensor<3x3x4x8xf32>) -> tensor<2x13x13x8xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[12, 12], [12, 12]], rhs_dilate = [12, 12]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x13x13x4xf32>, tensor<3x3x4x8xf32>) -> tensor<2x13x13x8xf32>
  return %0 : tensor<2x13x13x8xf32>
}

// -----

// Integers need no zeros. A reversed window begins with its last weight; the first tap is out of the array, which the
// padding then cuts off.
// CHECK-LABEL: func.func @reversed
// CHECK: %[[PART:.*]] = stablehlo.slice %arg1 [0:2, 0:1, 0:1]
// CHECK: stablehlo.convolution(%arg0, %[[PART]]) {{.*}} window = {pad = {{\[\[}}-1, 0]], rhs_dilate = [3], reverse = [true]}
// CHECK-NEXT: return
func.func @reversed(%x: tensor<1x6x1xi32>, %w: tensor<3x1x1xi32>) -> tensor<1x2x1xi32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[2, 0]], rhs_dilate = [3], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x1xi32>, tensor<3x1x1xi32>) -> tensor<1x2x1xi32>
  return %0 : tensor<1x2x1xi32>
}

// -----

// Finite constants need none either: a constant of the weights that are kept.
// CHECK-LABEL: func.func @finite
// CHECK: %[[PART:.*]] = stablehlo.constant dense<2.0{{.*}}> : tensor<1x1x1xf32>
// CHECK: stablehlo.convolution(%arg0, %[[PART]])
// CHECK-NEXT: return
func.func @finite(%x: tensor<1x1x1xf32>) -> tensor<1x1x1xf32> {
  %w = stablehlo.constant dense<[[[1.0]], [[2.0]], [[3.0]]]> : tensor<3x1x1xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x1x1xf32>, tensor<3x1x1xf32>) -> tensor<1x1x1xf32>
  return %0 : tensor<1x1x1xf32>
}
