// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-share-outside)' | FileCheck %s

// Bytes in the memory that a block shares are declared, not defined. Other globals are left alone.
// CHECK-DAG: llvm.mlir.global external @shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>
// CHECK-DAG: llvm.mlir.global internal @numbers() {addr_space = 3 : i32} : !llvm.array<4 x f32>
// CHECK-DAG: llvm.mlir.global internal @bytes() {addr_space = 0 : i32} : !llvm.array<4 x i8>
// CHECK-DAG: llvm.mlir.global internal @of_host() {addr_space = 3 : i32} : !llvm.array<0 x i8>
gpu.module @kernels {
  llvm.mlir.global internal @shared() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>
  llvm.mlir.global internal @numbers() {addr_space = 3 : i32} : !llvm.array<4 x f32>
  llvm.mlir.global internal @bytes() {addr_space = 0 : i32} : !llvm.array<4 x i8>
}
llvm.mlir.global internal @of_host() {addr_space = 3 : i32} : !llvm.array<0 x i8>
