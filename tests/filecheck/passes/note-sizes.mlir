// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-note-sizes)' | FileCheck %s

// Each buffer of main with a role gets its bytes, whatever its elements; what was said of it stays. Numbers and buffers
// without a role are left alone, and so are other functions.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: memref<6xf32> {llvm.noalias, stablexla.bytes = 24 : i64, stablexla.role = "parameter"}
// CHECK-SAME: memref<5xi1> {stablexla.bytes = 5 : i64, stablexla.role = "result"}
// CHECK-SAME: memref<0xi8> {stablexla.bytes = 0 : i64, stablexla.role = "arena"}
// CHECK-SAME: i32 {stablexla.role = "parameter"}
// CHECK-SAME: memref<2xf32>)
// CHECK-LABEL: func.func @other(
// CHECK-NOT: stablexla.bytes
func.func @main(%a: memref<6xf32> {stablexla.role = "parameter", llvm.noalias}, %b: memref<5xi1> {stablexla.role = "result"},
                %c: memref<0xi8> {stablexla.role = "arena"}, %d: i32 {stablexla.role = "parameter"}, %e: memref<2xf32>) {
  return
}
func.func @other(%a: memref<6xf32> {stablexla.role = "parameter"}) {
  %zero = arith.constant 0 : index
  return
}

// -----

// Without main nothing is done.
// CHECK-LABEL: // -----
// CHECK-NOT: stablexla.bytes
func.func @other(%a: memref<6xf32> {stablexla.role = "parameter"}) {
  %zero = arith.constant 0 : index
  return
}
