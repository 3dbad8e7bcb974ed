// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-shapes)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}at least two rows, but there are 1
func.func public @main(%x: tensor<1x3xf32>) -> tensor<1x3xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<1x3xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %enough = stablehlo.compare GE, %n, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%enough, %n) {
    api_version = 2 : i32, error_message = "at least two rows, but there are {0}", has_side_effect = true
  } : (tensor<i1>, tensor<i32>) -> ()
  return %x : tensor<1x3xf32>
}
