// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-flatten-indices)' | FileCheck %s

// Two components, of which one is an array before it gets the dimension of index vectors.
// CHECK-LABEL: func.func @elements
// CHECK: %[[LAST_ROW:.*]] = stablehlo.constant dense<4> : tensor<i32>
// CHECK: %[[I:.*]] = stablehlo.clamp %{{.*}}, %arg1, %[[LAST_ROW]]
// CHECK: %[[WIDTH:.*]] = stablehlo.constant dense<6> : tensor<4xi32>
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], %[[WIDTH]]
// CHECK: %[[LAST:.*]] = stablehlo.constant dense<5> : tensor<i32>
// CHECK: %[[J:.*]] = stablehlo.clamp %{{.*}}, %arg2, %[[LAST]]
// CHECK: %[[AT:.*]] = stablehlo.add %[[START]], %[[J]] : tensor<4xi32>
// CHECK: %[[LINE:.*]] = stablehlo.reshape %arg0 : (tensor<5x6xf32>) -> tensor<30xf32>
// CHECK: "stablehlo.gather"(%[[LINE]], %[[AT]]) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>{{.*}}slice_sizes = array<i64: 1>}>
func.func @elements(%x: tensor<5x6xf32>, %i: tensor<4xi32>, %j: tensor<4xi32>) -> tensor<4xf32> {
  %0 = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
  %1 = stablehlo.reshape %j : (tensor<4xi32>) -> tensor<4x1xi32>
  %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %3 = "stablehlo.gather"(%x, %2) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<5x6xf32>, tensor<4x2xi32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// Rows, at components in another order; what is not indexed keeps its dimensions.
// CHECK-LABEL: func.func @rows
// CHECK: stablehlo.reshape %arg0 : (tensor<2x5x6x3xf32>) -> tensor<2x30x3xf32>
// CHECK: "stablehlo.gather"{{.*}}offset_dims = [0, 2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>{{.*}}slice_sizes = array<i64: 2, 1, 3>
func.func @rows(%x: tensor<2x5x6x3xf32>, %i: tensor<4x1xui8>, %j: tensor<4x1xui8>) -> tensor<2x4x3xf32> {
  %0 = stablehlo.concatenate %i, %j, dim = 1 : (tensor<4x1xui8>, tensor<4x1xui8>) -> tensor<4x2xui8>
  %1 = "stablehlo.gather"(%x, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [1, 2], start_index_map = [2, 1], index_vector_dim = 1>, slice_sizes = array<i64: 2, 1, 1, 3>}> : (tensor<2x5x6x3xf32>, tensor<4x2xui8>) -> tensor<2x4x3xf32>
  return %1 : tensor<2x4x3xf32>
}

// -----

// Dimensions with another one between them, slices of more than one element, and vectors that are an array stay.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: stablehlo.reshape
// CHECK-NOT: stablehlo.clamp
// CHECK: return
func.func @kept(%x: tensor<5x6x7xf32>, %i: tensor<4x1xi32>, %v: tensor<4x2xi32>) -> (tensor<4x6xf32>, tensor<4x2x7xf32>, tensor<4x7xf32>) {
  %0 = stablehlo.concatenate %i, %i, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
  %1 = "stablehlo.gather"(%x, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 2], start_index_map = [0, 2], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6, 1>}> : (tensor<5x6x7xf32>, tensor<4x2xi32>) -> tensor<4x6xf32>
  %2 = "stablehlo.gather"(%x, %0) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2, 7>}> : (tensor<5x6x7xf32>, tensor<4x2xi32>) -> tensor<4x2x7xf32>
  %3 = "stablehlo.gather"(%x, %v) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1, 7>}> : (tensor<5x6x7xf32>, tensor<4x2xi32>) -> tensor<4x7xf32>
  return %1, %2, %3 : tensor<4x6xf32>, tensor<4x2x7xf32>, tensor<4x7xf32>
}
