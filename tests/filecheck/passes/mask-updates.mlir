// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-mask-updates)' | FileCheck %s

// The slice that is written is the old one where the condition does not hold.
// CHECK-LABEL: func.func @slice
// CHECK: %[[OLD:.*]] = stablehlo.dynamic_slice %arg1, %arg3, sizes = [2]
// CHECK: %[[PART:.*]] = stablehlo.select %arg0, %arg2, %[[OLD]] : tensor<i1>, tensor<2xf32>
// CHECK: %[[NEW:.*]] = stablehlo.dynamic_update_slice %arg1, %[[PART]], %arg3
// CHECK-NEXT: return %[[NEW]]
func.func @slice(%p: tensor<i1>, %x: tensor<6xf32>, %u: tensor<2xf32>, %i: tensor<i32>) -> tensor<6xf32> {
  %0 = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<6xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6xf32>
  %1 = stablehlo.select %p, %0, %x : tensor<i1>, tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// The indices point behind the array where it does; the condition was broadcast.
// CHECK-LABEL: func.func @scatter
// CHECK: %[[BEHIND:.*]] = stablehlo.constant dense<6> : tensor<1xi32>
// CHECK: %[[AT:.*]] = stablehlo.select %arg0, %[[BEHIND]], %arg3 : tensor<i1>, tensor<1xi32>
// CHECK: %[[NEW:.*]] = "stablehlo.scatter"(%arg1, %[[AT]], %arg2)
// CHECK: return %[[NEW]]
func.func @scatter(%p: tensor<i1>, %x: tensor<6xf32>, %u: tensor<f32>, %i: tensor<1xi32>) -> tensor<6xf32> {
  %q = stablehlo.broadcast_in_dim %p, dims = [] : (tensor<i1>) -> tensor<6xi1>
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<6xf32>, tensor<1xi32>, tensor<f32>) -> tensor<6xf32>
  %1 = stablehlo.select %q, %x, %0 : tensor<6xi1>, tensor<6xf32>
  return %1 : tensor<6xf32>
}

// -----

// An updated array that is used besides is made anyway, and one of another array is no update of this one.
// CHECK-LABEL: func.func @kept
// CHECK: %[[NEW:.*]] = stablehlo.dynamic_update_slice %arg1
// CHECK: %[[ONE:.*]] = stablehlo.select %arg0, %[[NEW]], %arg1
// CHECK: %[[OTHER:.*]] = stablehlo.dynamic_update_slice %[[NEW]]
// CHECK: %[[TWO:.*]] = stablehlo.select %arg0, %[[OTHER]], %arg1
// CHECK: return %[[ONE]], %[[TWO]]
func.func @kept(%p: tensor<i1>, %x: tensor<6xf32>, %u: tensor<2xf32>, %i: tensor<i32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %0 = stablehlo.dynamic_update_slice %x, %u, %i : (tensor<6xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6xf32>
  %1 = stablehlo.select %p, %0, %x : tensor<i1>, tensor<6xf32>
  %2 = stablehlo.dynamic_update_slice %0, %u, %i : (tensor<6xf32>, tensor<2xf32>, tensor<i32>) -> tensor<6xf32>
  %3 = stablehlo.select %p, %2, %x : tensor<i1>, tensor<6xf32>
  return %1, %3 : tensor<6xf32>, tensor<6xf32>
}
