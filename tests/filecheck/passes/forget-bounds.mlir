// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-forget-bounds)' | FileCheck %s

// Bounds leave the types of parameters, results and all values, regions included; known extents stay known.
// CHECK-NOT: bounds
// CHECK: func.func public @main(%[[X:.*]]: tensor<?x3xf32>) -> tensor<?x3xf32>
// CHECK-NEXT: %[[Y:.*]] = stablehlo.add %[[X]], %[[X]] : tensor<?x3xf32>
// CHECK: stablehlo.while(%{{.*}} = %[[Y]]) : tensor<?x3xf32>
// CHECK: stablehlo.get_dimension_size %{{.*}}, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
// CHECK-NOT: bounds
func.func public @main(%x: tensor<?x3xf32, #stablehlo.bounds<8, ?>>) -> tensor<?x3xf32, #stablehlo.bounds<8, ?>> {
  %y = stablehlo.add %x, %x : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
  %z = stablehlo.while(%s = %y) : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
  cond {
    %size = stablehlo.get_dimension_size %s, dim = 0 : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>) -> tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %more = stablehlo.compare LT, %size, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    stablehlo.return %s : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
  }
  return %z : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
}

// -----

// Types without bounds are left alone, unknown extents too.
// CHECK-LABEL: // -----
// CHECK: func.func public @main(%[[X:.*]]: tensor<?x4xf32>, %[[Y:.*]]: tensor<4xi32>) -> (tensor<?x4xf32>, tensor<4xi32>)
// CHECK-NEXT: return %[[X]], %[[Y]] : tensor<?x4xf32>, tensor<4xi32>
func.func public @main(%x: tensor<?x4xf32>, %y: tensor<4xi32>) -> (tensor<?x4xf32>, tensor<4xi32>) {
  return %x, %y : tensor<?x4xf32>, tensor<4xi32>
}
