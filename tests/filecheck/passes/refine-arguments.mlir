// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments{types=tensor<2x3xf32>,tensor<i32>})' | FileCheck %s

// A parameter gets its type; what uses it has the old one behind a wrapper, until shapes are refined. A parameter whose
// type is what it was, and the results, are left alone.
// CHECK: func.func public @main(%[[X:.*]]: tensor<2x3xf32>, %[[N:.*]]: tensor<i32>) -> (tensor<?x3xf32>, tensor<i32>)
// CHECK-NEXT: %[[SHAPE:.*]] = stablehlo.constant dense<[2, 3]> : tensor<2xi64>
// CHECK-NEXT: %[[OPEN:.*]] = stablehlo.custom_call @stablehlo.shape_refinement_operand_wrapper(%[[X]], %[[SHAPE]]) {indices_of_shape_operands = dense<1> : tensor<1xi64>} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<?x3xf32>
// CHECK-NOT: custom_call
// CHECK: %[[Y:.*]] = stablehlo.add %[[OPEN]], %[[OPEN]] : tensor<?x3xf32>
// CHECK: return %[[Y]], %[[N]]
func.func public @main(%x: tensor<?x3xf32>, %n: tensor<i32>) -> (tensor<?x3xf32>, tensor<i32>) {
  %0 = stablehlo.add %x, %x : tensor<?x3xf32>
  return %0, %n : tensor<?x3xf32>, tensor<i32>
}
