// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-begin-upstream)' | FileCheck %s

// Arguments of main alone are read-only; a kernel without a call of the host stays as it is.
// CHECK: func.func private @sort_0(%{{[^:]*}}: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "sort"}
// CHECK: func.func public @main(%{{.*}}: tensor<4xf32> {bufferization.writable = false}) -> tensor<4xf32>
func.func private @sort_0(%x: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "sort"} {
  return %x : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @sort_0(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = arith.negf %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
