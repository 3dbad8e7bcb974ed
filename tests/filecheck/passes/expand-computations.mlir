// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-expand-computations)" | FileCheck %s

// A computation on scalars stays as it is; one that holds arrays is the body of a loop over elements.

// CHECK-LABEL: func.func @scalars
// CHECK-NOT: stablehlo.while
// CHECK: "stablehlo.map"
func.func @scalars(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.map"(%x) ({
  ^bb0(%a: tensor<f32>):
    %1 = stablehlo.add %a, %a : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @arrays
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>)
// CHECK-NOT: stablehlo.map
// CHECK: stablehlo.while(%[[I:.*]] = %{{.*}}, %[[MADE:.*]] = %{{.*}}) : tensor<i64>, tensor<4xf32>
// CHECK: do
// CHECK: %[[ONE:.*]] = stablehlo.dynamic_slice %[[X]], %[[I]], sizes = [1]
// CHECK: %[[A:.*]] = stablehlo.reshape %[[ONE]]
// CHECK: stablehlo.broadcast_in_dim %[[A]], dims = [] : (tensor<f32>) -> tensor<3xf32>
// CHECK: %[[NEW:.*]] = stablehlo.reshape %{{.*}} : (tensor<f32>) -> tensor<1xf32>
// CHECK: stablehlo.dynamic_update_slice %[[MADE]], %[[NEW]], %[[I]]
func.func @arrays(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.map"(%x) ({
  ^bb0(%a: tensor<f32>):
    %1 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// A reduction is a loop over the places of its result, and one over the elements of each.

// CHECK-LABEL: func.func @nested_loops
// CHECK-COUNT-2: stablehlo.while
// CHECK: stablehlo.sort
func.func @nested_loops(%x: tensor<4x9xf32>, %start: tensor<f32>) -> tensor<4xf32> {
  %0 = stablehlo.reduce(%x init: %start) across dimensions = [1] : (tensor<4x9xf32>, tensor<f32>) -> tensor<4xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %1 = stablehlo.broadcast_in_dim %b, dims = [] : (tensor<f32>) -> tensor<3xf32>
    %2 = "stablehlo.sort"(%1) ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %less = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    }) : (tensor<3xf32>) -> tensor<3xf32>
    %3 = stablehlo.slice %2 [1:2] : (tensor<3xf32>) -> tensor<1xf32>
    %4 = stablehlo.reshape %3 : (tensor<1xf32>) -> tensor<f32>
    %5 = stablehlo.add %a, %4 : tensor<f32>
    stablehlo.return %5 : tensor<f32>
  }
  return %0 : tensor<4xf32>
}
