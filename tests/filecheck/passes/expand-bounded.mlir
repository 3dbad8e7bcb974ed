// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-expand-bounded)' --split-input-file | FileCheck %s

// An array is one of its bounds, and its size a scalar: a parameter and a result of its own. Element by element, what
// stands behind the size may be anything; a reduction sees what changes nothing.

// CHECK-LABEL: func.func public @main(%arg0: tensor<8x3xf32>, %arg1: tensor<i32>)
// CHECK-SAME: -> (tensor<8x3xf32>, tensor<3xf32>, tensor<i32>)
// CHECK: %[[TWICE:.*]] = stablehlo.add %arg0, %arg0 : tensor<8x3xf32>
// CHECK: %[[NEUTRAL:.*]] = stablehlo.constant dense<-0.000000e+00>
// CHECK: %[[FILL:.*]] = stablehlo.broadcast_in_dim %[[NEUTRAL]]
// CHECK: %[[PLACE:.*]] = stablehlo.iota dim = 0
// CHECK: %[[SIZE:.*]] = stablehlo.broadcast_in_dim %arg1
// CHECK: %[[SEEN:.*]] = stablehlo.compare LT, %[[PLACE]], %[[SIZE]]
// CHECK: %[[MASKED:.*]] = stablehlo.select %[[SEEN]], %[[TWICE]], %[[FILL]]
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[MASKED]] init:
// CHECK: return %[[TWICE]], %[[SUM]], %arg1
func.func public @main(%x: tensor<?x3xf32, #stablehlo.bounds<8, ?>>)
    -> (tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<3xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.add %x, %x : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
  %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<f32>) -> tensor<3xf32>
  return %y, %sum : tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<3xf32>
}

// -----

// The size of a loop's state goes round with it. A size that is set is held between 0 and the bound.

// CHECK-LABEL: func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<i32>)
// CHECK: %[[LOW:.*]] = stablehlo.maximum %arg1
// CHECK: %[[SIZE:.*]] = stablehlo.minimum %[[LOW]]
// CHECK: stablehlo.while({{.*}} = %arg0, %[[STATE:.*]] = %[[SIZE]])
// CHECK: do {
// CHECK:   stablehlo.return %{{.*}}, %[[STATE]] : tensor<4xf32>, tensor<i32>
// CHECK-NOT: dimension_size
func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>> {
  %y = stablehlo.set_dimension_size %x, %n, dim = 0
    : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
  %z = stablehlo.while(%s = %y) : tensor<?xf32, #stablehlo.bounds<4>>
  cond {
    %size = stablehlo.get_dimension_size %s, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %more = stablehlo.compare LT, %size, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %next = stablehlo.add %s, %s : tensor<?xf32, #stablehlo.bounds<4>>
    stablehlo.return %next : tensor<?xf32, #stablehlo.bounds<4>>
  }
  return %z : tensor<?xf32, #stablehlo.bounds<4>>
}

// -----

// Without dynamic dimensions nothing happens.

// CHECK-LABEL: func.func public @main(%arg0: tensor<4xf32>)
// CHECK-NEXT: %[[SIZE:.*]] = stablehlo.get_dimension_size %arg0, dim = 0
// CHECK-NEXT: return %[[SIZE]]
func.func public @main(%x: tensor<4xf32>) -> tensor<i32> {
  %size = stablehlo.get_dimension_size %x, dim = 0 : (tensor<4xf32>) -> tensor<i32>
  return %size : tensor<i32>
}
