// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-drop-unreachable)' | FileCheck %s

// What main names, in a call or in an attribute, is kept, and what these name; all else is dropped, public or not, also
// functions that only name themselves.
// CHECK-NOT: @other
// CHECK-LABEL: func.func public @main
// CHECK: func.func private @called
// CHECK: func.func private @named
// CHECK-NOT: func.func
func.func public @other(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @other(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @called(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @called(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.composite "my.twice" %x {decomposition = @named} : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
func.func private @named(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func private @alone(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}

// -----

// Without a function main nothing is dropped.
// CHECK-LABEL: // -----
// CHECK: func.func public @entry
// CHECK: func.func private @helper
func.func public @entry(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
func.func private @helper(%x: tensor<2xf32>) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}
