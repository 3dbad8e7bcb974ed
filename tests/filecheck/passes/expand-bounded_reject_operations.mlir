// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-expand-bounded)' 2>&1 | FileCheck %s

// A Fourier transform takes no array of a size at run time.
// CHECK: error: stablehlo.fft: dimensions that are transformed must be static
// CHECK-NEXT: from {{.*}}expand-bounded_reject_operations.mlir:8:
// CHECK-NEXT: operand 0 [<=8]
func.func public @main(%x: tensor<?xcomplex<f32>, #stablehlo.bounds<8>>) -> tensor<?xcomplex<f32>, #stablehlo.bounds<8>> {
  %0 = stablehlo.fft %x, type = FFT, length = [8] : (tensor<?xcomplex<f32>, #stablehlo.bounds<8>>) -> tensor<?xcomplex<f32>, #stablehlo.bounds<8>>
  return %0 : tensor<?xcomplex<f32>, #stablehlo.bounds<8>>
}
