// What is said and not expected, and what is expected and not said, makes the tool fail, as mlir-opt does.
// RUN: not stablexla-opt %s -split-input-file -verify-diagnostics 2>&1 | FileCheck %s

// CHECK: opt_verify_mismatch.mlir:[[@LINE+2]]:8: error: unexpected error: custom op 'stablehlo.nothing' is unknown
func.func @first(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.nothing %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// The text has to be on the right line, of the right kind.
// CHECK: opt_verify_mismatch.mlir:[[@LINE+4]]:8: error: unexpected error: custom op 'arith.nothing' is unknown
// CHECK: opt_verify_mismatch.mlir:[[@LINE+2]]: error: expected warning "custom op" was not produced
func.func @second(%x: f32) -> f32 {
  // expected-warning@+1 {{custom op}}
  %0 = arith.nothing %x : f32
  return %0 : f32
}
