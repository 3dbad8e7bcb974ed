// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-inline-calls)' 2>&1 | FileCheck %s

// CHECK: func.call: @elsewhere has no body, or one of several blocks
func.func public @main(%x: tensor<i32>) -> tensor<i32> {
  %0 = func.call @elsewhere(%x) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
func.func private @elsewhere(tensor<i32>) -> tensor<i32>
