// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --stage=buffers --num-threads=1 | FileCheck %s --check-prefix=BUFFERS

// The meaning is the textbook's loops.
// CHECK: func.func private @cholesky_0(%{{.*}}: tensor<1x40x40xf32>) -> tensor<1x40x40xf32>
// CHECK-SAME: stablexla.config = {lower = true}
// CHECK: scf.for
// CHECK: math.sqrt
// CHECK: tensor.insert

// A large matrix goes to LAPACK, to which rows are columns.
// BUFFERS: func.func private @stablexla_lapack_spotrf(!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr)
// BUFFERS: func.func private @cholesky_0_impl
// BUFFERS: arith.constant 85 : i8
// BUFFERS: call @stablexla_lapack_spotrf
func.func public @main(%a: tensor<40x40xf32>) -> tensor<40x40xf32> {
  %0 = stablehlo.cholesky %a, lower = true : tensor<40x40xf32>
  return %0 : tensor<40x40xf32>
}

// -----

// Small floats are computed in f32. Many small systems stand in the lanes of vectors.
// CHECK-LABEL: // -----
// CHECK: func.func private @triangular_solve_0(%{{.*}}: tensor<18x3x3xf32>, %{{.*}}: tensor<18x3x2xf32>)
// CHECK: func.func public @main
// CHECK-COUNT-2: arith.extf %{{.*}} : bf16 to f32
// CHECK: call @triangular_solve_0
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// BUFFERS-LABEL: // -----
// BUFFERS: func.func private @triangular_solve_0_impl
// BUFFERS: arith.divf %{{.*}} : vector<{{.*}}xf32>
func.func public @main(%a: tensor<9x2x3x3xbf16>, %b: tensor<9x2x3x2xbf16>) -> tensor<9x2x3x2xbf16> {
  %0 = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>}> : (tensor<9x2x3x3xbf16>, tensor<9x2x3x2xbf16>) -> tensor<9x2x3x2xbf16>
  return %0 : tensor<9x2x3x2xbf16>
}
