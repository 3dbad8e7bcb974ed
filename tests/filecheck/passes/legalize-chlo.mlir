// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-legalize-chlo)' | FileCheck %s

// A function without an approximation below 16 bits is computed in f32; what only decomposes a composite stays.
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[WIDE:.*]] = stablehlo.convert %arg0 : (tensor<2xf8E4M3FN>) -> tensor<2xf32>
// CHECK-NOT: chlo.
// CHECK: %[[NARROW:.*]] = stablehlo.convert %{{.*}} : (tensor<2xf32>) -> tensor<2xf8E4M3FN>
// CHECK-NOT: chlo.
// CHECK: %[[KEPT:.*]] = stablehlo.composite "chlo.erf" %[[NARROW]]
// CHECK-NEXT: return %[[KEPT]]
// CHECK-LABEL: func.func private @kept
// CHECK-NEXT: chlo.erf %arg0 : tensor<2xf8E4M3FN>

func.func public @main(%x: tensor<2xf8E4M3FN>) -> tensor<2xf8E4M3FN> {
  %0 = chlo.bessel_i1e %x : tensor<2xf8E4M3FN> -> tensor<2xf8E4M3FN>
  %1 = stablehlo.composite "chlo.erf" %0 {decomposition = @kept, version = 1 : i32} : (tensor<2xf8E4M3FN>) -> tensor<2xf8E4M3FN>
  return %1 : tensor<2xf8E4M3FN>
}
func.func private @kept(%x: tensor<2xf8E4M3FN>) -> tensor<2xf8E4M3FN> {
  %0 = chlo.erf %x : tensor<2xf8E4M3FN> -> tensor<2xf8E4M3FN>
  return %0 : tensor<2xf8E4M3FN>
}
