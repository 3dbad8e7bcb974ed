// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-legalize-quantized)' 2>&1 | FileCheck %s

// Types that are quantised in blocks along several dimensions.
// CHECK: quant.uniform
func.func public @main(%x: tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.5, 0.25}}>>) -> tensor<2x4xf32> {
  %0 = stablehlo.uniform_dequantize %x : (tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.5, 0.25}}>>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
