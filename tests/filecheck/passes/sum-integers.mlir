// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-sum-integers)' | FileCheck %s

// Bytes are multiplied as they are, the zero point times the sums of the weights is subtracted, and known scales are one.
// CHECK-LABEL: func.func @product
// CHECK: %[[COLUMNS:.*]] = stablehlo.reduce
// CHECK: %[[ADDED:.*]] = stablehlo.multiply %[[COLUMNS]]
// CHECK: %[[SPREAD:.*]] = stablehlo.broadcast_in_dim %[[ADDED]], dims = [1]
// CHECK: %[[SUMS:.*]] = stablehlo.dot_general {{.*}} -> tensor<4x8xi32>
// CHECK: %[[INTEGERS:.*]] = stablehlo.subtract %[[SUMS]], %[[SPREAD]]
// CHECK: %[[NUMBERS:.*]] = stablehlo.convert %[[INTEGERS]] : (tensor<4x8xi32>) -> tensor<4x8xf32>
// CHECK: stablehlo.constant dense<1.250000e-01>
// CHECK: stablehlo.multiply %[[NUMBERS]]
// CHECK-NEXT: return
func.func @product(%x: tensor<4x16xui8>, %w: tensor<16x8xi8>) -> tensor<4x8xf32> {
  %zero = stablehlo.constant dense<3.0> : tensor<4x16xf32>
  %half = stablehlo.constant dense<0.5> : tensor<4x16xf32>
  %quarter = stablehlo.constant dense<0.25> : tensor<16x8xf32>
  %0 = stablehlo.convert %x : (tensor<4x16xui8>) -> tensor<4x16xf32>
  %1 = stablehlo.subtract %0, %zero : tensor<4x16xf32>
  %2 = stablehlo.multiply %1, %half : tensor<4x16xf32>
  %3 = stablehlo.convert %w : (tensor<16x8xi8>) -> tensor<16x8xf32>
  %4 = stablehlo.multiply %3, %quarter : tensor<16x8xf32>
  %5 = stablehlo.dot_general %2, %4, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// -----

// The padding of a convolution has to be the zero point.
// CHECK-LABEL: func.func @padded
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<3> : tensor<ui8>
// CHECK: stablehlo.pad %arg0, %[[ZERO]], low = [0, 1, 0], high = [0, 1, 0], interior = [0, 0, 0]
// CHECK: stablehlo.convolution{{.*}}pad = {{\[\[}}0, 0]]{{.*}} -> tensor<1x9x4xi32>
func.func @padded(%x: tensor<1x9x8xui8>, %w: tensor<3x8x4xi8>) -> tensor<1x9x4xf32> {
  %zero = stablehlo.constant dense<3.0> : tensor<1x9x8xf32>
  %half = stablehlo.constant dense<0.5> : tensor<1x9x8xf32>
  %quarter = stablehlo.constant dense<0.25> : tensor<3x8x4xf32>
  %0 = stablehlo.convert %x : (tensor<1x9x8xui8>) -> tensor<1x9x8xf32>
  %1 = stablehlo.subtract %0, %zero : tensor<1x9x8xf32>
  %2 = stablehlo.multiply %1, %half : tensor<1x9x8xf32>
  %3 = stablehlo.convert %w : (tensor<3x8x4xi8>) -> tensor<3x8x4xf32>
  %4 = stablehlo.multiply %3, %quarter : tensor<3x8x4xf32>
  %5 = stablehlo.convolution(%2, %4) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x9x8xf32>, tensor<3x8x4xf32>) -> tensor<1x9x4xf32>
  return %5 : tensor<1x9x4xf32>
}

// -----

// The largest of what bytes stand for, and the same quantization again: the largest of the bytes.
// CHECK-LABEL: func.func @pooled
// CHECK: %[[LOW:.*]] = stablehlo.constant dense<-128> : tensor<i8>
// CHECK: %[[TOP:.*]] = "stablehlo.reduce_window"(%arg0, %[[LOW]])
// CHECK: return %[[TOP]]
func.func @pooled(%x: tensor<8xi8>) -> tensor<4xi8> {
  %half = stablehlo.constant dense<0.5> : tensor<8xf32>
  %two = stablehlo.constant dense<2.0> : tensor<4xf32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.convert %x : (tensor<8xi8>) -> tensor<8xf32>
  %1 = stablehlo.multiply %0, %half : tensor<8xf32>
  %2 = "stablehlo.reduce_window"(%1, %low) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %6 = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %6 : tensor<f32>
  }) : (tensor<8xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = stablehlo.multiply %2, %two : tensor<4xf32>
  %4 = stablehlo.round_nearest_even %3 : tensor<4xf32>
  %5 = stablehlo.convert %4 : (tensor<4xf32>) -> tensor<4xi8>
  return %5 : tensor<4xi8>
}
