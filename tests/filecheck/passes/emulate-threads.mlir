// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-emulate-threads)' | FileCheck %s

// The runtime's function for emulated threads is called, and declared, in place of that for parallel ones; other calls
// are left alone.
// CHECK-NOT: stablexla_parallel_for
// CHECK: llvm.func @stablexla_emulated_threads(!llvm.ptr, !llvm.ptr, i64, i64)
// CHECK: llvm.func @other(i64)
// CHECK: llvm.func @main(
// CHECK: llvm.call @stablexla_emulated_threads(%{{.*}}, %{{.*}}, %[[N:.*]], %[[N]]) :
// CHECK-NEXT: llvm.call @other(%[[N]])
// CHECK-NOT: stablexla_parallel_for
llvm.func @stablexla_parallel_for(!llvm.ptr, !llvm.ptr, i64, i64)
llvm.func @other(i64)
llvm.func @main(%task: !llvm.ptr, %context: !llvm.ptr, %n: i64) {
  llvm.call @stablexla_parallel_for(%task, %context, %n, %n) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
  llvm.call @other(%n) : (i64) -> ()
  llvm.return
}
