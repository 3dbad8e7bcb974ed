// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-run-in-parallel)' | FileCheck %s

// A call with a grain becomes one of a launcher, with the kernel's task; one without stays. The launcher hands the runtime
// the arguments in a struct on its stack. It serves all kernels of such arguments.
// CHECK-LABEL: llvm.func @main(
// CHECK-SAME: %[[P:.*]]: !llvm.ptr, %[[N:.*]]: i32)
// CHECK: %[[HIGH:.*]] = llvm.mlir.constant(100 : i64)
// CHECK: %[[TASK:.*]] = llvm.mlir.addressof @kernel_task
// CHECK: %[[GRAIN:.*]] = llvm.mlir.constant(8 : i64)
// CHECK: llvm.call @stablexla_launch_0(%[[TASK]], %[[P]], %[[N]], %[[HIGH]], %[[GRAIN]])
// CHECK-NOT: stablexla.grain
// CHECK: llvm.call @kernel(%[[P]], %[[N]], %{{.*}}, %[[HIGH]])
// CHECK: llvm.mlir.addressof @other_task
// CHECK: llvm.call @stablexla_launch_0(
// CHECK-LABEL: llvm.func internal @stablexla_launch_0(
// CHECK-SAME: %[[TASK:.*]]: !llvm.ptr, %[[P:.*]]: !llvm.ptr, %[[N:.*]]: i32, %[[COUNT:.*]]: i64, %[[GRAIN:.*]]: i64)
// CHECK: %[[CONTEXT:.*]] = llvm.alloca %{{.*}} x !llvm.struct<(ptr, i32)>
// CHECK: %[[FIRST:.*]] = llvm.getelementptr %[[CONTEXT]][0, 0]
// CHECK: llvm.store %[[P]], %[[FIRST]]
// CHECK: %[[SECOND:.*]] = llvm.getelementptr %[[CONTEXT]][0, 1]
// CHECK: llvm.store %[[N]], %[[SECOND]]
// CHECK: llvm.call @stablexla_parallel_for(%[[TASK]], %[[CONTEXT]], %[[COUNT]], %[[GRAIN]])
// CHECK-LABEL: llvm.func internal @kernel_task(
// CHECK-SAME: %[[FROM:.*]]: !llvm.ptr, %[[LO:.*]]: i64, %[[HI:.*]]: i64)
// CHECK: %[[FIRST:.*]] = llvm.getelementptr %[[FROM]][0, 0]
// CHECK: %[[A:.*]] = llvm.load %[[FIRST]]
// CHECK: %[[SECOND:.*]] = llvm.getelementptr %[[FROM]][0, 1]
// CHECK: %[[B:.*]] = llvm.load %[[SECOND]]
// CHECK: llvm.call @kernel(%[[A]], %[[B]], %[[LO]], %[[HI]])
// CHECK-NOT: @stablexla_launch_1
llvm.func @other(%p: !llvm.ptr, %n: i32, %lo: i64, %hi: i64) {
  llvm.return
}
llvm.func @kernel(%p: !llvm.ptr, %n: i32, %lo: i64, %hi: i64) {
  llvm.return
}
llvm.func @main(%p: !llvm.ptr, %n: i32) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %high = llvm.mlir.constant(100 : i64) : i64
  llvm.call @kernel(%p, %n, %zero, %high) {stablexla.grain = 8 : i64} : (!llvm.ptr, i32, i64, i64) -> ()
  llvm.call @kernel(%p, %n, %zero, %high) : (!llvm.ptr, i32, i64, i64) -> ()
  llvm.call @other(%p, %n, %zero, %high) {stablexla.grain = 8 : i64} : (!llvm.ptr, i32, i64, i64) -> ()
  llvm.return
}

// -----

// Calls are marked in main alone: elsewhere a mark says nothing, and the runtime is not asked for.
// CHECK-LABEL: // -----
// CHECK-NOT: stablexla_parallel_for
// CHECK: llvm.call @kernel({{.*}}) {stablexla.grain = 8 : i64}
// CHECK-NOT: stablexla_parallel_for
llvm.func @kernel(%p: !llvm.ptr, %lo: i64, %hi: i64) {
  llvm.return
}
llvm.func @other(%p: !llvm.ptr, %lo: i64, %hi: i64) {
  llvm.call @kernel(%p, %lo, %hi) {stablexla.grain = 8 : i64} : (!llvm.ptr, i64, i64) -> ()
  llvm.return
}
