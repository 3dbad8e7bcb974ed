// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// A draw asks for a key, which is an effect, and is then element-wise arithmetic on the elements' numbers.
// CHECK: func.func private @random_key_0() -> tensor<i64>
// CHECK: %[[KEY:.*]] = call @random_key_0() {stablexla.effect}
// CHECK: %[[FIRST:.*]] = tensor.extract %[[KEY]][]
// CHECK: linalg.generic {{.*}} ["parallel"]
// CHECK: linalg.index 0
// CHECK: arith.shli
// CHECK: arith.sitofp
// CHECK: linalg.yield
// CHECK: %[[OTHER:.*]] = call @random_key_{{[01]}}() {stablexla.effect}
// CHECK: linalg.generic
func.func public @main(%a: tensor<f32>, %b: tensor<f32>) -> (tensor<6x7xf32>, tensor<6x7xf32>) {
  %s = stablehlo.constant dense<[6, 7]> : tensor<2xi64>
  %0 = stablehlo.rng %a, %b, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<6x7xf32>
  %1 = stablehlo.rng %a, %b, %s, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<6x7xf32>
  return %0, %1 : tensor<6x7xf32>, tensor<6x7xf32>
}

// -----

// Bits are a kernel of their own, for whoever can make many blocks at once. The body says what each element is.
// CHECK-LABEL: // -----
// CHECK: func.func private @random_bits_0(%{{.*}}: i64, %{{.*}}: i64) -> tensor<42xi32>
// CHECK-SAME: algorithm = "THREE_FRY"
// CHECK-SAME: layout = {inner = 7 : i64, length = 6 : i64, outer = 1 : i64, words = 2 : i64}
// CHECK: linalg.generic
// CHECK: func.func public @main
// CHECK: linalg.generic
// CHECK: call @random_bits_0
func.func public @main(%s: tensor<2xui64>) -> (tensor<2xui64>, tensor<6x7xui32>) {
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<6x7xui32>)
  return %0, %1 : tensor<2xui64>, tensor<6x7xui32>
}

// -----

// Short loops of a known number of turns are written out.
// CHECK-LABEL: // -----
// CHECK-NOT: scf.while
// CHECK-COUNT-3: arith.addf
// CHECK-NOT: arith.addf
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<2> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c0, %v = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %n = stablehlo.constant dense<5> : tensor<i32>
    %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %c1, %i : tensor<i32>
    %w = stablehlo.add %v, %v : tensor<4xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}
