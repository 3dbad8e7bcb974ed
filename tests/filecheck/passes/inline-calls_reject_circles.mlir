// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-inline-calls)' 2>&1 | FileCheck %s

// CHECK: func.call: functions call each other in a circle: odd -> even -> odd
func.func public @main(%x: tensor<i32>) -> tensor<i32> {
  %0 = func.call @odd(%x) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
func.func private @odd(%x: tensor<i32>) -> tensor<i32> {
  %0 = func.call @even(%x) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
func.func private @even(%x: tensor<i32>) -> tensor<i32> {
  %0 = func.call @odd(%x) : (tensor<i32>) -> tensor<i32>
  return %0 : tensor<i32>
}
