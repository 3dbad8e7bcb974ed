// RUN: stablexla-opt %s -split-input-file -verify-diagnostics --stage=tensor

// Said by the parser of StableHLO's MLIR.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{custom op 'stablehlo.nothing' is unknown}}
  %0 = stablehlo.nothing %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Said by its verifier, with a regular expression.
func.func @main(%x: tensor<4xf32>) -> tensor<3xf32> {
  // expected-error-re@below {{'stablehlo.add' op requires {{[a-z ]+}} operands}}
  %0 = "stablehlo.add"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// -----

// An error with its note.
func.func @main(%x: tensor<4xf32>) -> tensor<3xf32> {
  // expected-note@above {{prior use here}}
  return %x : tensor<3xf32> // expected-error {{expects different type than prior uses}}
}

// -----

// Said by a pass that is written in Python.
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{there is no target 'nobody_has_it'}}
  %0 = stablehlo.custom_call @nobody_has_it(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Nothing is said.
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
