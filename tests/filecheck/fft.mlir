// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --stage=buffers --num-threads=2 --vector-bits=256 | FileCheck %s --check-prefix=BUFFERS

// The tables of the plan are operands; six real numbers are three complex ones, transformed in f64 and joined.
// CHECK: func.func private @fft_0(%{{.*}}: tensor<6xf32>, %{{.*}}: tensor<2x3xf64>, %{{.*}}: tensor<2x4xf64>)
// CHECK-SAME: stablexla.config = {fft_length = [6], fft_type = "RFFT", shape = [4]}
// CHECK-SAME: stablexla.kernel = "fft"
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK: func.func public @main
// CHECK-COUNT-2: arith.constant dense<{{.*}}> : tensor<2x{{.*}}xf64>
// CHECK: call @fft_0

// Lines of three numbers, one in each lane of a vector.
// BUFFERS: func.func private @fft_0_impl
// BUFFERS: builtin.unrealized_conversion_cast %{{.*}} : !llvm.struct<{{.*}}> to memref<8xf32>
// BUFFERS: arith.extf %{{.*}} : f32 to f64
func.func public @main(%x: tensor<6xf32>) -> tensor<4xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [6] : (tensor<6xf32>) -> tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}

// -----

// A long line is split in two, and the parts are phases that threads share; the table between them is taken apart.
// CHECK-LABEL: // -----
// CHECK: func.func private @fft_0(%{{.*}}: tensor<65536xcomplex<f64>>, {{.*}}tensor<2x4096xf64>, %{{.*}}: tensor<2x4096xf64>)
// BUFFERS-LABEL: // -----
// BUFFERS: func.func private @fft_0_impl_0(
// BUFFERS: func.func private @fft_0_impl(
// BUFFERS: func.func public @main
// BUFFERS: call @fft_0_impl_0({{.*}}) {stablexla.grain
// BUFFERS: call @fft_0_impl({{.*}}) {stablexla.grain
func.func public @main(%x: tensor<65536xcomplex<f64>>) -> tensor<65536xcomplex<f64>> {
  %0 = stablehlo.fft %x, type = IFFT, length = [65536] : (tensor<65536xcomplex<f64>>) -> tensor<65536xcomplex<f64>>
  return %0 : tensor<65536xcomplex<f64>>
}
