// Operations that the builder never writes.
// RUN: stablexla-opt %s --split-input-file --target=gpu:sm_80 --stage=ptx | FileCheck %s

// CHECK: .target sm_80
// CHECK: {{mul|fma}}.rn.f32
// CHECK-NOT: call
func.func @main(%x: tensor<4x5xf32>, %y: tensor<5x6xf32>) -> tensor<4x6xf32> {
  %0 = stablehlo.dot %x, %y : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}

// -----

// CHECK: .target sm_80
// CHECK: max.s32
// CHECK: min.s32
// CHECK: ld.global.nc
// CHECK: st.global
func.func @main(%table: tensor<8x4xf32>, %rows: tensor<3xi32>) -> tensor<3x4xf32> {
  %sizes = stablehlo.constant dense<[1, 4]> : tensor<2xi32>
  %0 = "stablehlo.dynamic_gather"(%table, %rows, %sizes) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>
  } : (tensor<8x4xf32>, tensor<3xi32>, tensor<2xi32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// -----

// One device adds nothing up.
// CHECK: .target sm_80
// CHECK-NOT: add.rn.f32
func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = "stablehlo.cross-replica-sum"(%x) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<1000xf32>) -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
