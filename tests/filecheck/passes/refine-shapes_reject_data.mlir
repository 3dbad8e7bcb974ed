// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-shapes)' 2>&1 | FileCheck %s

// An extent that depends on the values of an array.
// CHECK: stablehlo.dynamic_iota: the size of dimension 0 of the result cannot be told from the shapes of the arguments: it depends on their values
// CHECK: try: a bounded type, tensor<?xf32, #stablehlo.bounds<8>>, where a bound is known
func.func public @main(%n: tensor<1xi32>) -> tensor<?xi32> {
  %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}
