// RUN: not stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(cse)' 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERROR --input-file=%t

// CHECK-LABEL: @first
// CHECK: stablehlo.add
// CHECK-NOT: stablehlo.add
func.func @first(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0 = stablehlo.add %x, %x : tensor<2xf32>
  %1 = stablehlo.add %x, %x : tensor<2xf32>
  return %0, %1 : tensor<2xf32>, tensor<2xf32>
}

// -----

// A part that is wrong does not keep the others from being read, and its lines are counted from the file's beginning.
// ERROR: error: {{.*}}split_input.mlir:[[@LINE+2]]:8: custom op 'stablehlo.nonsense' is unknown
func.func @second(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.nonsense %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// CHECK: // -----
// CHECK-LABEL: @third
// CHECK: arith.addf
func.func @third(%x: f32) -> f32 {
  %0 = arith.addf %x, %x : f32
  return %0 : f32
}
