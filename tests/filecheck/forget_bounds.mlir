// Without bounds, sizes of arguments become extents. The same program, of bounded sizes and of known ones, is compared.
// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-forget-bounds,stablexla-refine-arguments{types=tensor<5x3xf32>},stablexla-refine-shapes)' | FileCheck %s
// RUN: stablexla-run %s --input='[[1, 2, 3], [4, 5, 6]]' --compare=reference | FileCheck %s --check-prefix=COMPARED

// CHECK: func.func public @main(%[[X:.*]]: tensor<5x3xf32>) -> (tensor<5x3xf32>, tensor<3xf32>)
// CHECK: %[[Y:.*]] = stablehlo.add %[[X]], %[[X]] : tensor<5x3xf32>
// CHECK: stablehlo.reduce(%[[Y]] init: {{.*}}) applies stablehlo.add across dimensions = [0] : (tensor<5x3xf32>
// CHECK-NOT: bounds

// COMPARED: f32[8,3]
// COMPARED: main against interpreter: equal
// COMPARED: operations are judged in the program for these sizes

func.func public @main(%x: tensor<?x3xf32, #stablehlo.bounds<8, ?>>)
    -> (tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<3xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.add %x, %x : tensor<?x3xf32, #stablehlo.bounds<8, ?>>
  %sum = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<f32>) -> tensor<3xf32>
  return %y, %sum : tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<3xf32>
}
