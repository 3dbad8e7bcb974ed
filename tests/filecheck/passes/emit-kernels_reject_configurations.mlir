// RUN: not stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-emit-kernels)' 2>&1 | FileCheck %s

// A kernel's configuration has all fields of its kind, and no others.
// CHECK: error: {{.*}}stablexla.config of @fft_0 lacks the field 'fft_type' of FftConfig
func.func private @fft_0(%x: tensor<1x2x2xf32>) -> tensor<1x2x2xf32> attributes {stablexla.kernel = "fft", stablexla.config = {fft_length = [2], shape = [2]}} {
  %made = tensor.empty() : tensor<1x2x2xf32>
  return %made : tensor<1x2x2xf32>
}
func.func public @main(%x: tensor<1x2x2xf32>) -> tensor<1x2x2xf32> {
  %0 = call @fft_0(%x) : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  return %0 : tensor<1x2x2xf32>
}

// -----

// CHECK: error: {{.*}}stablexla.config of @fft_0 has a field 'shapes', and FftConfig does not
func.func private @fft_0(%x: tensor<1x2x2xf32>) -> tensor<1x2x2xf32> attributes {stablexla.kernel = "fft", stablexla.config = {fft_length = [2], fft_type = "FFT", shapes = [2]}} {
  %made = tensor.empty() : tensor<1x2x2xf32>
  return %made : tensor<1x2x2xf32>
}
func.func public @main(%x: tensor<1x2x2xf32>) -> tensor<1x2x2xf32> {
  %0 = call @fft_0(%x) : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  return %0 : tensor<1x2x2xf32>
}

// -----

// CHECK: error: {{.*}}the kernel @fft_0 has no stablexla.config, which is a FftConfig
func.func private @fft_0(%x: tensor<1x2x2xf32>) -> tensor<1x2x2xf32> attributes {stablexla.kernel = "fft"} {
  %made = tensor.empty() : tensor<1x2x2xf32>
  return %made : tensor<1x2x2xf32>
}
func.func public @main(%x: tensor<1x2x2xf32>) -> tensor<1x2x2xf32> {
  %0 = call @fft_0(%x) : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>
  return %0 : tensor<1x2x2xf32>
}
