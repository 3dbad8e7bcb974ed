// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-merge-concatenates)' | FileCheck %s

// A slice that lies in one piece, so that the inner concatenation has one user.
// CHECK-LABEL: func.func @padded
// CHECK: %[[LAST:.*]] = stablehlo.slice %arg1 [1:5:2, 0:2]
// CHECK-NEXT: stablehlo.concatenate %arg0, %arg1, %[[LAST]], dim = 0
// CHECK-NEXT: return
func.func @padded(%x: tensor<2x2xf32>, %y: tensor<5x2xf32>) -> tensor<9x2xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<2x2xf32>, tensor<5x2xf32>) -> tensor<7x2xf32>
  %1 = stablehlo.slice %0 [3:7:2, 0:2] : (tensor<7x2xf32>) -> tensor<2x2xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<7x2xf32>, tensor<2x2xf32>) -> tensor<9x2xf32>
  return %2 : tensor<9x2xf32>
}

// -----

// A slice of two pieces stays, and so does what it slices.
// CHECK-LABEL: func.func @of_two
// CHECK: %[[BOTH:.*]] = stablehlo.concatenate %arg0, %arg1, dim = 0
// CHECK-NEXT: %[[PART:.*]] = stablehlo.slice %[[BOTH]] [1:3, 0:2]
// CHECK-NEXT: stablehlo.concatenate %[[BOTH]], %[[PART]], dim = 0
func.func @of_two(%x: tensor<2x2xf32>, %y: tensor<5x2xf32>) -> tensor<9x2xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<2x2xf32>, tensor<5x2xf32>) -> tensor<7x2xf32>
  %1 = stablehlo.slice %0 [1:3, 0:2] : (tensor<7x2xf32>) -> tensor<2x2xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 0 : (tensor<7x2xf32>, tensor<2x2xf32>) -> tensor<9x2xf32>
  return %2 : tensor<9x2xf32>
}

// -----

// Along another dimension, and twice in one concatenation: they stay.
// CHECK-LABEL: func.func @others
// CHECK: stablehlo.concatenate %arg0, %arg1, dim = 0
// CHECK: stablehlo.concatenate {{.*}}, dim = 1
// CHECK: stablehlo.concatenate {{.*}}, dim = 1
func.func @others(%x: tensor<2x2xf32>, %y: tensor<5x2xf32>) -> tensor<7x8xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<2x2xf32>, tensor<5x2xf32>) -> tensor<7x2xf32>
  %1 = stablehlo.concatenate %0, %0, dim = 1 : (tensor<7x2xf32>, tensor<7x2xf32>) -> tensor<7x4xf32>
  %2 = stablehlo.concatenate %1, %1, dim = 1 : (tensor<7x4xf32>, tensor<7x4xf32>) -> tensor<7x8xf32>
  return %2 : tensor<7x8xf32>
}

// -----

// A slice of a slice's piece, through two concatenations.
// CHECK-LABEL: func.func @through
// CHECK: stablehlo.slice %arg1 [1:2, 1:2]
// CHECK-NEXT: return
func.func @through(%x: tensor<2x2xf32>, %y: tensor<5x2xf32>, %z: tensor<7x3xf32>) -> tensor<1x1xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<2x2xf32>, tensor<5x2xf32>) -> tensor<7x2xf32>
  %1 = stablehlo.concatenate %z, %0, dim = 1 : (tensor<7x3xf32>, tensor<7x2xf32>) -> tensor<7x5xf32>
  %2 = stablehlo.slice %1 [3:4, 4:5] : (tensor<7x5xf32>) -> tensor<1x1xf32>
  return %2 : tensor<1x1xf32>
}
