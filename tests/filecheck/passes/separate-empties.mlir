// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-separate-empties)' | FileCheck %s

// Two uses of an empty array, each the place of another result, have one of their own.
// CHECK-COUNT-2: tensor.empty() : tensor<4xf32>
// CHECK: linalg.exp
// CHECK: linalg.log
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = tensor.empty() : tensor<4xf32>
  %1 = linalg.exp ins(%x : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  %2 = linalg.log ins(%x : tensor<4xf32>) outs(%0 : tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}
