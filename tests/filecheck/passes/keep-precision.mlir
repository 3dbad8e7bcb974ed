// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-keep-precision)' | FileCheck %s

// Every kernel gets the attribute, and nothing else does.
// CHECK: func.func private @loop_0({{.*}} attributes {{.*}}stablexla.excess_precision
// CHECK: func.func public @main(
// CHECK-NOT: stablexla.excess_precision
func.func private @loop_0(%x: tensor<4xbf16>) -> tensor<4xbf16> attributes {stablexla.kernel = "loop"} {
  %e = tensor.empty() : tensor<4xbf16>
  %y = linalg.exp ins(%x : tensor<4xbf16>) outs(%e : tensor<4xbf16>) -> tensor<4xbf16>
  return %y : tensor<4xbf16>
}
func.func public @main(%x: tensor<4xbf16>) -> tensor<4xbf16> {
  %y = func.call @loop_0(%x) : (tensor<4xbf16>) -> tensor<4xbf16>
  return %y : tensor<4xbf16>
}
