// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-refine-shapes)' | FileCheck %s

// The extents of a parameter are carried to all values, through calls, and what computes a shape is done now. A shape
// assertion that holds is dropped.
// CHECK: func.func public @main(%[[X:.*]]: tensor<4x3xf32>, %[[V:.*]]: tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NOT: custom_call
// CHECK-NOT: call
// CHECK-NOT: ?x
// CHECK: %[[W:.*]] = stablehlo.broadcast_in_dim %[[V]], dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT: %[[Y:.*]] = stablehlo.add %[[X]], %[[W]] : tensor<4x3xf32>
// CHECK-NEXT: return %[[Y]]
func.func public @main(%x: tensor<4x3xf32>, %v: tensor<3xf32>) -> tensor<?x3xf32> {
  %c = stablehlo.constant dense<[4, 3]> : tensor<2xi64>
  %open = stablehlo.custom_call @stablehlo.shape_refinement_operand_wrapper(%x, %c)
    {indices_of_shape_operands = dense<1> : tensor<1xi64>} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<?x3xf32>
  %y = func.call @add(%open, %v) : (tensor<?x3xf32>, tensor<3xf32>) -> tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}
func.func private @add(%x: tensor<?x3xf32>, %v: tensor<3xf32>) -> tensor<?x3xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %enough = stablehlo.compare GE, %n, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%enough, %n) {
    api_version = 2 : i32, error_message = "at least two rows, but there are {0}", has_side_effect = true
  } : (tensor<i1>, tensor<i32>) -> ()
  %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %three = stablehlo.constant dense<3> : tensor<1xi32>
  %shape = stablehlo.concatenate %rows, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %v, %shape, dims = [1] : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %y = stablehlo.add %x, %w : tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}

// -----

// Where all extents are known nothing is changed: no call is inlined.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NEXT: %[[Y:.*]] = call @twice(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: return %[[Y]]
// CHECK: func.func private @twice
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = func.call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
