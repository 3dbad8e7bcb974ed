// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-clamp-shifts)' | FileCheck %s

// A distance of 64 bits is held below 64, of scalars and of vectors.
// CHECK-LABEL: llvm.func @wide(
// CHECK-SAME: %[[X:.*]]: i64, %[[D:.*]]: i64, %[[V:.*]]: vector<2xi64>)
// CHECK: %[[LAST:.*]] = llvm.mlir.constant(63 : i64)
// CHECK-NEXT: %[[HELD:.*]] = llvm.intr.umin(%[[D]], %[[LAST]]) : (i64, i64) -> i64
// CHECK-NEXT: llvm.shl %[[X]], %[[HELD]] : i64
// CHECK-NEXT: %[[LASTS:.*]] = llvm.mlir.constant(dense<63> : vector<2xi64>)
// CHECK-NEXT: %[[ALL:.*]] = llvm.intr.umin(%[[V]], %[[LASTS]])
// CHECK-NEXT: llvm.lshr %[[V]], %[[ALL]] : vector<2xi64>

// Known distances, those of 32 bits, and shifts with the sign are right as they are.
// CHECK-LABEL: llvm.func @others(
// CHECK-NOT: llvm.intr.umin
// CHECK: llvm.return
gpu.module @kernels {
  llvm.func @wide(%x: i64, %d: i64, %v: vector<2xi64>) {
    %0 = llvm.shl %x, %d : i64
    %1 = llvm.lshr %v, %v : vector<2xi64>
    llvm.return
  }
  llvm.func @others(%x: i64, %y: i32) {
    %d = llvm.mlir.constant(7 : i64) : i64
    %0 = llvm.shl %x, %d : i64
    %1 = llvm.shl %y, %y : i32
    %2 = llvm.ashr %x, %x : i64
    llvm.return
  }
}

// The host's shifts are its own.
// CHECK-LABEL: llvm.func @main(
// CHECK-NOT: llvm.intr.umin
llvm.func @main(%x: i64) {
  %0 = llvm.shl %x, %x : i64
  llvm.return
}
