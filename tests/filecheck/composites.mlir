// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// Elementary functions of CHLO keep their names down to the arithmetic, computed in f32 or wider.
// CHECK: math.erf %{{.*}} : f32
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK-NEXT: math.acos %{{.*}} : f32
// CHECK-NEXT: arith.truncf %{{.*}} : f32 to bf16
func.func public @main(%x: tensor<4xf32>, %y: tensor<4xbf16>) -> (tensor<4xf32>, tensor<4xbf16>) {
  %0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  %1 = chlo.acos %y : tensor<4xbf16> -> tensor<4xbf16>
  return %0, %1 : tensor<4xf32>, tensor<4xbf16>
}

// -----

// Those without an expansion of their own, and complex ones, are written out in StableHLO first.
// CHECK-LABEL: // -----
// CHECK-NOT: chlo
// CHECK-NOT: math.sinh
// CHECK: math.log
func.func public @main(%x: tensor<4xf32>, %z: tensor<4xcomplex<f32>>) -> (tensor<4xf32>, tensor<4xcomplex<f32>>) {
  %0 = chlo.digamma %x : tensor<4xf32> -> tensor<4xf32>
  %1 = chlo.sinh %z : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
  return %0, %1 : tensor<4xf32>, tensor<4xcomplex<f32>>
}

// -----

// A composite that nobody has a kernel for is its decomposition.
// CHECK-LABEL: // -----
// CHECK: linalg.generic
// CHECK: arith.addf
// CHECK-NOT: linalg.generic
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.composite "my.twice" %x {decomposition = @twice} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
