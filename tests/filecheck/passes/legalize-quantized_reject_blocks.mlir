// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-legalize-quantized)' 2>&1 | FileCheck %s

// A type that is quantised in blocks along several dimensions.
// CHECK: error: the type !quant.uniform<i8:f32:{0:1, 1:2}, {{.*}}> is not there yet: quantised types are uniform, by tensor or by axis
func.func public @main(%x: tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.5, 0.25}}>>) -> tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.5, 0.25}}>> {
  return %x : tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.5, 0.25}}>>
}
