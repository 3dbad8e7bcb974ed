// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// Loops over batch, free and contracted dimensions, in this order; the sum starts at zero.
// CHECK-DAG: #[[LHS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG: #[[RHS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: linalg.fill ins(%[[ZERO]] : f32) outs({{.*}} : tensor<2x4x6xf32>)
// CHECK: linalg.generic
// CHECK-SAME: indexing_maps = [#[[LHS]], #[[RHS]], #[[OUT]]]
// CHECK-SAME: iterator_types = ["parallel", "parallel", "parallel", "reduction"]
// Small floats are summed in f32 and rounded once.
// CHECK-NEXT: ^bb0(%{{.*}}: bf16, %{{.*}}: bf16, %[[TOTAL:.*]]: f32):
// CHECK-COUNT-2: arith.extf
// CHECK: %[[PRODUCT:.*]] = arith.mulf {{.*}} : f32
// CHECK-NEXT: arith.addf %[[TOTAL]], %[[PRODUCT]] : f32
// CHECK: linalg.generic
// CHECK: arith.truncf {{.*}} : f32 to bf16
func.func public @main(%x: tensor<2x4x5xbf16>, %y: tensor<2x6x5xbf16>) -> tensor<2x4x6xbf16> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [2]
    : (tensor<2x4x5xbf16>, tensor<2x6x5xbf16>) -> tensor<2x4x6xbf16>
  return %0 : tensor<2x4x6xbf16>
}

// -----

// A transposed operand is read where it lies.
// CHECK-LABEL: // -----
// CHECK: #[[TURNED:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-NOT: stablexla.transpose
// CHECK: linalg.generic {indexing_maps = [#[[TURNED]], {{.*}} ins(%arg0, %arg1 :
func.func public @main(%x: tensor<5x4xf32>, %y: tensor<5xf32>) -> tensor<4xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<5x4xf32>) -> tensor<4x5xf32>
  %0 = stablehlo.dot %t, %y : (tensor<4x5xf32>, tensor<5xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Integers are extended to the result's type; a single element comes out of the loop as a scalar.
// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} iterator_types = ["reduction"]
// CHECK-COUNT-2: arith.extsi {{.*}} : i8 to i32
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: tensor.extract %{{.*}}[] : tensor<i32>
func.func public @main(%x: tensor<5xi8>, %y: tensor<5xi8>) -> tensor<i32> {
  %0 = stablehlo.dot %x, %y : (tensor<5xi8>, tensor<5xi8>) -> tensor<i32>
  return %0 : tensor<i32>
}

// -----

// An algorithm says to which type the operands are rounded, and in which one is summed up.
// CHECK-LABEL: // -----
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: arith.extf %{{.*}} : bf16 to f32
// CHECK: arith.mulf %{{.*}} : f32
// CHECK-NEXT: arith.addf %{{.*}} : f32
func.func public @main(%x: tensor<4x5xf32>, %y: tensor<5x6xf32>) -> tensor<4x6xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], algorithm = <
    lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1,
    rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false>
    : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// Integers that are repeated along a contracted dimension multiply a sum over that dimension.
// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<5x6xi32>)
// CHECK: arith.addi
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%{{.*}} : tensor<4x5xi32>, tensor<5xi32>)
// CHECK: arith.muli
func.func public @main(%x: tensor<4x5xi32>, %y: tensor<5x6xi32>) -> tensor<4xi32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 1] : (tensor<4x5xi32>) -> tensor<4x5x6xi32>
  %1 = stablehlo.dot_general %0, %y, contracting_dims = [1, 2] x [0, 1]
    : (tensor<4x5x6xi32>, tensor<5x6xi32>) -> tensor<4xi32>
  return %1 : tensor<4xi32>
}

// -----

// The sum of floats might overflow: a number that is repeated scales each element of it, one of a matrix is written out.
// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : f32, tensor<5x6xf32>)
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} ins(%{{.*}} : tensor<4x5xf32>, tensor<5x6xf32>)
// CHECK: arith.mulf
// CHECK: arith.addf
func.func public @main(%x: tensor<f32>, %v: tensor<4xf32>, %y: tensor<5x6xf32>) -> (tensor<6xf32>, tensor<4x6xf32>) {
  %0 = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<5xf32>
  %1 = stablehlo.dot_general %0, %y, contracting_dims = [0] x [0] : (tensor<5xf32>, tensor<5x6xf32>) -> tensor<6xf32>
  %2 = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<4xf32>) -> tensor<4x5xf32>
  %3 = stablehlo.dot_general %2, %y, contracting_dims = [1] x [0] : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return %1, %3 : tensor<6xf32>, tensor<4x6xf32>
}

// -----

// Nothing is read twice in a batch of dot products: loops in the order of the operands' dimensions load rows.
// CHECK-LABEL: // -----
// CHECK: linalg.generic {indexing_maps = [#[[SAME:.*]], #[[SAME]], #{{.*}}], iterator_types = ["reduction", "parallel"]}
func.func public @main(%x: tensor<5x40xf32>, %y: tensor<5x40xf32>) -> tensor<40xf32> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [1] x [1], contracting_dims = [0] x [0]
    : (tensor<5x40xf32>, tensor<5x40xf32>) -> tensor<40xf32>
  return %0 : tensor<40xf32>
}
