// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-lower-to-tensor)' 2>&1 | FileCheck %s

// CHECK: error: stablehlo.composite: there is no kernel for the composite 'my.unknown', and it was not decomposed
// CHECK-NEXT: from {{.*}}:8:
// CHECK-NEXT: operand 0  f32[4]

func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.composite "my.unknown" %x {decomposition = @own} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @own(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
