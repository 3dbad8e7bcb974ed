// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-legalize-quantized)' --split-input-file | FileCheck %s

// Quantised arrays become their integers; operations on them the arithmetic that the specification defines.

// What only moves elements works on the integers.

// CHECK-LABEL: func.func public @main(%arg0: tensor<2x3xui8>) -> tensor<3x2xui8>
// CHECK-NEXT: stablehlo.transpose %arg0, dims = [1, 0] : (tensor<2x3xui8>) -> tensor<3x2xui8>
// CHECK-NEXT: return
func.func public @main(%x: tensor<2x3x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<3x2x!quant.uniform<u8:f32, 0.5:3>> {
  %y = stablehlo.transpose %x, dims = [1, 0]
    : (tensor<2x3x!quant.uniform<u8:f32, 0.5:3>>) -> tensor<3x2x!quant.uniform<u8:f32, 0.5:3>>
  return %y : tensor<3x2x!quant.uniform<u8:f32, 0.5:3>>
}

// -----

// The others compute with what the integers stand for.

// CHECK-LABEL: func.func public @main(%arg0: tensor<4xi8>) -> tensor<4xi8>
// CHECK: %[[WIDE:.*]] = stablehlo.convert %arg0 : (tensor<4xi8>) -> tensor<4xi32>
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<3> : tensor<4xi32>
// CHECK: %[[LESS:.*]] = stablehlo.subtract %[[WIDE]], %[[ZERO]]
// CHECK: %[[FLOAT:.*]] = stablehlo.convert %[[LESS]] : (tensor<4xi32>) -> tensor<4xf32>
// CHECK: %[[SCALE:.*]] = stablehlo.constant dense<5.000000e-01>
// CHECK: %[[X:.*]] = stablehlo.multiply %[[FLOAT]], %[[SCALE]]
// CHECK: %[[Y:.*]] = stablehlo.tanh %[[X]] : tensor<4xf32>
// CHECK: %[[Q:.*]] = stablehlo.divide %[[Y]], %{{.*}} : tensor<4xf32>
// CHECK: %[[ROUND:.*]] = stablehlo.round_nearest_even %[[Q]]
// CHECK: stablehlo.convert %[[ROUND]] : (tensor<4xf32>) -> tensor<4xi8>
func.func public @main(%x: tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.25>> {
  %y = stablehlo.tanh %x : (tensor<4x!quant.uniform<i8:f32, 0.5:3>>) -> tensor<4x!quant.uniform<i8:f32, 0.25>>
  return %y : tensor<4x!quant.uniform<i8:f32, 0.25>>
}

// -----

// Products of bytes are sums of integers; of the zero point of lhs the sums of rhs are taken off.

// CHECK-LABEL: func.func public @main(%arg0: tensor<2x4xi8>, %arg1: tensor<4x3xi8>)
// CHECK: %[[SUMS:.*]] = stablehlo.reduce({{.*}}) applies stablehlo.add across dimensions = [0]
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<3> : tensor<3xi32>
// CHECK: %[[OFF:.*]] = stablehlo.multiply %[[SUMS]], %[[ZERO]] : tensor<3xi32>
// CHECK: %[[WIDE:.*]] = stablehlo.broadcast_in_dim %[[OFF]], dims = [1] : (tensor<3xi32>) -> tensor<2x3xi32>
// CHECK: %[[DOT:.*]] = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<2x4xi8>, tensor<4x3xi8>) -> tensor<2x3xi32>
// CHECK: stablehlo.subtract %[[DOT]], %[[WIDE]] : tensor<2x3xi32>
// CHECK: %[[SCALES:.*]] = stablehlo.constant dense<[2.500000e-01, 1.250000e-01, 5.000000e-01]> : tensor<3xf32>
// CHECK: stablehlo.broadcast_in_dim %[[SCALES]], dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
func.func public @main(
    %x: tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, %w: tensor<4x3x!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25, 1.0}>>)
    -> tensor<2x3x!quant.uniform<i32:f32:1, {0.25, 0.125, 0.5}>> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<2x4x!quant.uniform<i8:f32, 0.5:3>>, tensor<4x3x!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25, 1.0}>>)
    -> tensor<2x3x!quant.uniform<i32:f32:1, {0.25, 0.125, 0.5}>>
  return %y : tensor<2x3x!quant.uniform<i32:f32:1, {0.25, 0.125, 0.5}>>
}

// -----

// A product that 32 bits do not hold is one of floats.

// CHECK-LABEL: func.func public @main(%arg0: tensor<2x4xi16>, %arg1: tensor<4x3xi16>)
// CHECK: %[[X:.*]] = stablehlo.multiply %{{.*}}, %{{.*}} : tensor<2x4xf32>
// CHECK: stablehlo.dot_general %[[X]], %{{.*}} : (tensor<2x4xf32>, tensor<4x3xf32>) -> tensor<2x3xf32>
// CHECK-NOT: dot_general
func.func public @main(%x: tensor<2x4x!quant.uniform<i16:f32, 0.5:3>>, %w: tensor<4x3x!quant.uniform<i16:f32, 0.5>>)
    -> tensor<2x3x!quant.uniform<i16:f32, 0.5>> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<2x4x!quant.uniform<i16:f32, 0.5:3>>, tensor<4x3x!quant.uniform<i16:f32, 0.5>>)
    -> tensor<2x3x!quant.uniform<i16:f32, 0.5>>
  return %y : tensor<2x3x!quant.uniform<i16:f32, 0.5>>
}
