// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-run-in-parallel)' | FileCheck %s

// A call with a grain hands the runtime a task, and the arguments in a struct on the stack of main; one without stays.
// CHECK-LABEL: llvm.func @main(
// CHECK-SAME: %[[P:.*]]: !llvm.ptr, %[[N:.*]]: i32)
// CHECK: %[[CONTEXT:.*]] = llvm.alloca %{{.*}} x !llvm.struct<(ptr, i32)>
// CHECK: %[[HIGH:.*]] = llvm.mlir.constant(100 : i64)
// CHECK: llvm.insertvalue %[[P]], %{{.*}}[0]
// CHECK: %[[ARGS:.*]] = llvm.insertvalue %[[N]], %{{.*}}[1]
// CHECK: llvm.store %[[ARGS]], %[[CONTEXT]]
// CHECK: %[[TASK:.*]] = llvm.mlir.addressof @kernel_task
// CHECK: %[[GRAIN:.*]] = llvm.mlir.constant(8 : i64)
// CHECK: llvm.call @stablexla_parallel_for(%[[TASK]], %[[CONTEXT]], %[[HIGH]], %[[GRAIN]])
// CHECK-NOT: stablexla.grain
// CHECK: llvm.call @kernel(%[[P]], %[[N]], %{{.*}}, %[[HIGH]])
// CHECK: llvm.func internal @kernel_task(%[[FROM:.*]]: !llvm.ptr, %[[LO:.*]]: i64, %[[HI:.*]]: i64)
// CHECK: %[[ALL:.*]] = llvm.load %[[FROM]]
// CHECK-DAG: %[[A:.*]] = llvm.extractvalue %[[ALL]][0]
// CHECK-DAG: %[[B:.*]] = llvm.extractvalue %[[ALL]][1]
// CHECK: llvm.call @kernel(%[[A]], %[[B]], %[[LO]], %[[HI]])
llvm.func @kernel(%p: !llvm.ptr, %n: i32, %lo: i64, %hi: i64) {
  llvm.return
}
llvm.func @main(%p: !llvm.ptr, %n: i32) {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %high = llvm.mlir.constant(100 : i64) : i64
  llvm.call @kernel(%p, %n, %zero, %high) {stablexla.grain = 8 : i64} : (!llvm.ptr, i32, i64, i64) -> ()
  llvm.call @kernel(%p, %n, %zero, %high) : (!llvm.ptr, i32, i64, i64) -> ()
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
