// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-begin-upstream)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}the target upstream has no runtime, which collective of @collective_0 calls
func.func private @collective_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "collective"} {
  return %x : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @collective_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = arith.negf %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
