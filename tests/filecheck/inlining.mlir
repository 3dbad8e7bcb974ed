// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-decompose-composites,stablexla-inline-calls)' | FileCheck %s

// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-decompose-composites{all=true},stablexla-inline-calls)' | FileCheck %s --check-prefix=ALL

// Composites become calls and calls become bodies; a composite that has a kernel stays, with its decomposition.
// ALL: stablexla.composites = {"chlo.erf v1" = "decomposition", "my.twice v0" = "decomposition"}
// ALL-NOT: stablehlo.composite
// ALL-NOT: func.func private

// CHECK: stablexla.composites = {"chlo.erf v1" = "kernel", "my.twice v0" = "decomposition"}
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[TWICE:.*]] = stablehlo.add %arg0, %arg0
// CHECK-NEXT: %[[IF:.*]] = "stablehlo.if"(%arg1) ({
// CHECK-NEXT:   %[[INNER:.*]] = stablehlo.add %[[TWICE]], %[[TWICE]]
// CHECK-NEXT:   stablehlo.return %[[INNER]]
// CHECK:        stablehlo.return %[[TWICE]]
// CHECK: %[[KEPT:.*]] = stablehlo.composite "chlo.erf" %[[IF]]
// CHECK-NEXT: return %[[KEPT]]
// CHECK: func.func private @kept
// CHECK-NOT: func.func

func.func public @main(%x: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
  %0 = stablehlo.composite "my.twice" %x {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "stablehlo.if"(%p) ({
    %3 = func.call @twice(%0) : (tensor<2xf32>) -> tensor<2xf32>
    stablehlo.return %3 : tensor<2xf32>
  }, {
    stablehlo.return %0 : tensor<2xf32>
  }) : (tensor<i1>) -> tensor<2xf32>
  %2 = stablehlo.composite "chlo.erf" %1 {decomposition = @kept, version = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32>
  return %2 : tensor<2xf32>
}
func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @kept(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func private @unused(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
