// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-check-values)' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-check-values{least=true})' | FileCheck %s --check-prefix=LEAST

// The conditions of both operations become an array of bytes, by one operation each, and the largest of them a number.
// CHECK-LABEL: func.func public @main
// CHECK-SAME: -> (tensor<4xf32>, tensor<i32>)
// CHECK: stablehlo.log
// CHECK-NEXT: stablehlo.map
// CHECK: stablehlo.compare NE
// CHECK: stablehlo.sqrt
// CHECK-NEXT: stablehlo.map
// CHECK: stablehlo.compare NE
// CHECK: stablehlo.maximum {{.*}}tensor<ui8>
// CHECK: stablehlo.reduce{{.*}}applies stablehlo.maximum
// CHECK: return %{{.*}}, %{{.*}} : tensor<4xf32>, tensor<i32>

// A NaN of the logarithm is in the root.
// LEAST-LABEL: func.func public @main
// LEAST: stablehlo.log
// LEAST-NEXT: stablehlo.sqrt
// LEAST-NEXT: "stablehlo.map"(%1)
// LEAST: stablehlo.compare NE, {{.*}}, FLOAT
// LEAST-NOT: FLOAT
// LEAST: return
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.log %x : tensor<4xf32>
  %1 = stablehlo.sqrt %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// A loop carries the number, its iteration, and a count. It counts to a constant, and is not left early.
// CHECK-LABEL: func.func public @main
// CHECK-SAME: -> (tensor<f32>, tensor<i32>, tensor<i32>)
// CHECK: stablehlo.while
// CHECK-SAME: tensor<i32>, tensor<f32>, tensor<i32>, tensor<i32>, tensor<i32>
// CHECK: stablehlo.compare LT
// CHECK-NEXT: stablehlo.return
// CHECK: stablehlo.sqrt
// CHECK: stablehlo.select

// Each iteration hands a NaN on, so that the loop's result is looked at.
// LEAST-LABEL: func.func public @main
// LEAST: stablehlo.while
// LEAST-SAME: : tensor<i32>, tensor<f32>{{$}}
// LEAST: stablehlo.sqrt
// LEAST-NEXT: stablehlo.return
// LEAST: stablehlo.compare NE, %{{.*}}#1, %{{.*}}#1, FLOAT
func.func public @main(%x: tensor<f32>) -> tensor<f32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<9> : tensor<i32>
  %0:2 = stablehlo.while(%i = %zero, %s = %x) : tensor<i32>, tensor<f32>
  cond {
    %1 = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.sqrt %s : tensor<f32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<f32>
  }
  return %0#1 : tensor<f32>
}

// -----

// A product's operands, which are in memory, are looked through only where the product shows a NaN. Numbers of the
// program's text make some operations harmless: x * x, and a division by 4.
// CHECK-LABEL: func.func public @main
// CHECK: stablehlo.multiply
// CHECK-NEXT: stablehlo.divide
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: stablehlo.map
// CHECK: stablehlo.if
// CHECK: stablehlo.map
// CHECK: stablehlo.not
// CHECK: return
func.func public @main(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %four = stablehlo.constant dense<4.0> : tensor<4x4xf32>
  %0 = stablehlo.multiply %x, %x : tensor<4x4xf32>
  %1 = stablehlo.divide %0, %four : tensor<4x4xf32>
  %2 = stablehlo.dot_general %1, %y, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
