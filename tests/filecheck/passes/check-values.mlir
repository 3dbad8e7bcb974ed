// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-check-values)' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-check-values{least=true})' | FileCheck %s --check-prefix=LEAST

// The conditions of both operations become an array of bytes, and the largest of them a number.
// CHECK-LABEL: func.func public @main
// CHECK-SAME: -> (tensor<4xf32>, tensor<i32>)
// CHECK: stablehlo.log
// CHECK: stablehlo.compare NE
// CHECK: stablehlo.sqrt
// CHECK: stablehlo.compare NE
// CHECK: stablehlo.maximum {{.*}}tensor<4xui8>
// CHECK: stablehlo.reduce{{.*}}applies stablehlo.maximum
// CHECK: return %{{.*}}, %{{.*}} : tensor<4xf32>, tensor<i32>

// A NaN of the logarithm is in the root.
// LEAST-LABEL: func.func public @main
// LEAST: stablehlo.log
// LEAST-NEXT: stablehlo.sqrt
// LEAST-NEXT: stablehlo.compare NE, %1, %1, FLOAT
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
