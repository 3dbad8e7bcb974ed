// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-inline-calls)' | FileCheck %s

// Calls of calls, in regions too, become bodies, and the functions go.
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[A:.*]] = stablehlo.add %arg0, %arg0
// CHECK-NEXT: %[[B:.*]] = stablehlo.multiply %[[A]], %arg0
// CHECK-NEXT: %[[IF:.*]] = "stablehlo.if"(%arg1) ({
// CHECK-NEXT:   %[[C:.*]] = stablehlo.add %[[B]], %[[B]]
// CHECK-NEXT:   stablehlo.return %[[C]]
// CHECK: return %[[IF]]
// CHECK-NOT: func.func
func.func public @main(%x: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
  %0 = func.call @outer(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "stablehlo.if"(%p) ({
    %2 = func.call @inner(%0) : (tensor<2xf32>) -> tensor<2xf32>
    stablehlo.return %2 : tensor<2xf32>
  }, {
    stablehlo.return %0 : tensor<2xf32>
  }) : (tensor<i1>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func private @outer(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @inner(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.multiply %0, %x : tensor<2xf32>
  return %1 : tensor<2xf32>
}
func.func private @inner(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func public @unused(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}

// -----

// What a composite or a custom call names is no call, and stays. What is started is run where it is started.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NEXT: %[[KEPT:.*]] = stablehlo.composite "my.kept" %arg0
// CHECK-NEXT: %[[SUM:.*]] = "stablehlo.all_reduce"(%[[KEPT]])
// CHECK: return %[[SUM]]
// CHECK: func.func private @kept
// CHECK: func.func private @computation
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.composite "my.kept" %x {decomposition = @kept} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "stablehlo.async_start"(%0) ({
  ^bb0(%a: tensor<2xf32>):
    %3 = "stablehlo.all_reduce"(%a) ({
    ^bb0(%b: tensor<f32>, %c: tensor<f32>):
      %4 = stablehlo.add %b, %c : tensor<f32>
      stablehlo.return %4 : tensor<f32>
    }) {replica_groups = dense<[[0]]> : tensor<1x1xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    stablehlo.return %3 : tensor<2xf32>
  }) : (tensor<2xf32>) -> !stablehlo.future<tensor<2xf32>>
  stablehlo.custom_call @other(%0) {called_computations = [@computation]} : (tensor<2xf32>) -> ()
  %2 = "stablehlo.async_done"(%1) : (!stablehlo.future<tensor<2xf32>>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
func.func private @kept(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func private @computation(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
