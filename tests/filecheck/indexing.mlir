// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// Rows are copied one after the other; an unsigned start is only held from above. The emitter is told the loops' steps.
// CHECK: func.func private @gather_0(%arg0: tensor<32xf32>, %arg1: tensor<3xi8>) -> tensor<12xf32>
// CHECK-SAME: axes = [{extent = 3 : i64, index_step = 1 : i64, operand_step = 0 : i64, result_step = 4 : i64}, {extent = 4 : i64, index_step = 0 : i64, operand_step = 1 : i64, result_step = 1 : i64}], index_type = "u8", starts = [{highest = 7 : i64, offset = 0 : i64, step = 4 : i64}]
// CHECK-SAME: stablexla.independent
// CHECK: scf.for
// CHECK: %[[START:.*]] = arith.minui %{{.*}}, %c7_i8
// CHECK: arith.index_castui %[[START]] : i8 to index
// CHECK: scf.for
// CHECK-NOT: arith.min
// CHECK: tensor.extract %arg0
// CHECK: tensor.insert
func.func public @main(%x: tensor<8x4xf32>, %i: tensor<3xui8>) -> tensor<3x4xf32> {
  %0 = "stablehlo.gather"(%x, %i) {
    dimension_numbers = #stablehlo.gather<
      offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 4>
  } : (tensor<8x4xf32>, tensor<3xui8>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// Starts that a loop outside would read again and again are held within the operand once, in a table.
// CHECK-LABEL: // -----
// CHECK: func.func private @gather_0
// CHECK-NOT: arith.m{{ax|in}}
// CHECK: @main
// CHECK: linalg.generic
// CHECK: arith.maxsi
// CHECK: arith.minsi
// CHECK: call @gather_0({{.*}}) : (tensor<32xf32>, tensor<3xi32>) -> tensor<24xf32>
func.func public @main(%x: tensor<8x4xf32>, %i: tensor<3x1xi64>) -> tensor<8x3xf32> {
  %0 = "stablehlo.gather"(%x, %i) {
    dimension_numbers = #stablehlo.gather<
      offset_dims = [0], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
    slice_sizes = array<i64: 8, 1>
  } : (tensor<8x4xf32>, tensor<3x1xi64>) -> tensor<8x3xf32>
  return %0 : tensor<8x3xf32>
}

// -----

// A window that lies inside is combined as a whole; of another one the part that does.
// CHECK-LABEL: // -----
// CHECK: func.func private @scatter_0(%arg0: tensor<8xf32>, %arg1: tensor<3xi32>, %arg2: tensor<6xf32>)
// CHECK: %[[DONE:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %arg0)
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult, %{{.*}}, %c7_i32
// CHECK: scf.if %[[INSIDE]]
// CHECK: scf.for %{{.*}} = %c0 to %c2
// CHECK: arith.addf
// CHECK: else
// CHECK: scf.for
// CHECK: arith.addf
// CHECK: return %[[DONE]]
func.func public @main(%x: tensor<8xf32>, %i: tensor<3xi32>, %u: tensor<3x2xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<
    update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<8xf32>, tensor<3xi32>, tensor<3x2xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// The places of a batching dimension are independent; what is overwritten is not read. pred is a byte.
// CHECK-LABEL: // -----
// CHECK: func.func private @scatter_0(%arg0: tensor<16xi8>, {{.*}}stablexla.independent
// CHECK: scf.for %{{.*}} = %c0 to %c2
// CHECK: scf.for %{{.*}} = %c0 to %c3
// CHECK: scf.if
// CHECK-NOT: tensor.extract %arg6
// CHECK: tensor.insert
func.func public @main(%x: tensor<2x8xi1>, %i: tensor<2x3xi32>, %u: tensor<2x3xi1>) -> tensor<2x8xi1> {
  %0 = "stablehlo.scatter"(%x, %i, %u) ({
  ^bb0(%a: tensor<i1>, %b: tensor<i1>):
    stablehlo.return %b : tensor<i1>
  }) {scatter_dimension_numbers = #stablehlo.scatter<
    inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0],
    scatter_dims_to_operand_dims = [1], index_vector_dim = 2>}
    : (tensor<2x8xi1>, tensor<2x3xi32>, tensor<2x3xi1>) -> tensor<2x8xi1>
  return %0 : tensor<2x8xi1>
}
