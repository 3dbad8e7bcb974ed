// RUN: stablexla-opt %s --stage=kernels | FileCheck %s --check-prefix=KERNELS
// RUN: stablexla-opt %s --stage=buffers | FileCheck %s --check-prefix=BUFFERS

// A call of LAPACK is a kernel that says which routine, for which sizes and words. Its matrices lie in columns.
// KERNELS: func.func private @lapack_0(%{{.*}}: tensor<4x8x8xf32>) -> (tensor<4x8x8xf32>, tensor<4x8xf32>, tensor<4xi32>)
// KERNELS-SAME: stablexla.config = {batch = 4 : i64, routine = "ssyevd", sizes = {n = 8 : i64}, words = {mode = "V", uplo = "L"}}
// KERNELS: func.func public @main
// KERNELS: call @transpose_0
// KERNELS: call @lapack_0
// KERNELS: call @transpose_0

// One call for each matrix, with one work space for all; the vectors come where the matrices were.
// BUFFERS: func.func private @stablexla_lapack_ssyevd
// BUFFERS: func.func private @lapack_0_impl(%{{.*}}: memref<256xf32>, %{{.*}}: memref<256xf32>, %{{.*}}: memref<32xf32>
// BUFFERS: call @stablexla_blas_alone_begin
// BUFFERS: memref.alloc
// BUFFERS: scf.for
// BUFFERS: call @stablexla_lapack_ssyevd
// BUFFERS: memref.dealloc
// BUFFERS: call @stablexla_blas_alone_end
func.func @main(%a: tensor<4x8x8xf32>) -> (tensor<4x8x8xf32>, tensor<4x8xf32>) {
  %r:3 = stablehlo.custom_call @lapack_ssyevd_ffi(%a) {
    mhlo.backend_config = {mode = 86 : ui8, uplo = 76 : ui8},
    operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>],
    output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>],
    result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]
  } : (tensor<4x8x8xf32>) -> (tensor<4x8x8xf32>, tensor<4x8xf32>, tensor<4xi32>)
  return %r#0, %r#1 : tensor<4x8x8xf32>, tensor<4x8xf32>
}
