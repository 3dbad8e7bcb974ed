// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-decompose-composites)' | FileCheck %s
// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-decompose-composites{all=true})' | FileCheck %s --check-prefix=ALL

// A composite becomes a call of its decomposition; one that the target has a kernel for stays. The module notes which
// went which way. Calls are not inlined, and decompositions are not dropped.
// CHECK: stablexla.composites = {"chlo.erf v1" = "kernel", "my.twice v0" = "decomposition"}
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[TWICE:.*]] = call @twice(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
// CHECK-NEXT: %[[ERF:.*]] = stablehlo.composite "chlo.erf" %[[TWICE]] {decomposition = @erf, stablexla.target = "cpu", version = 1 : i32}
// CHECK-NEXT: %[[ADDED:.*]] = stablehlo.add %[[ERF]], %[[TWICE]]
// CHECK-NEXT: return %[[ADDED]]
// CHECK: func.func private @twice
// CHECK: func.func private @erf

// ALL: stablexla.composites = {"chlo.erf v1" = "decomposition", "my.twice v0" = "decomposition"}
// ALL-NOT: stablehlo.composite
// ALL: call @twice(%arg0)
// ALL: call @erf(
// ALL-NOT: stablehlo.composite

func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.composite "my.twice" %x {decomposition = @twice} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.composite "chlo.erf" %0 {decomposition = @erf, version = 1 : i32} : (tensor<2xf32>) -> tensor<2xf32>
  %2 = stablehlo.add %1, %0 : tensor<2xf32>
  return %2 : tensor<2xf32>
}
func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @erf(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
