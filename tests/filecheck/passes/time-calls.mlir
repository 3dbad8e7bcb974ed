// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-time-calls)' | FileCheck %s

// Marks 2n and 2n + 1 stand around call n, in main and in the tasks of threads; the module lists what is called, behind
// a parallel call the kernel that its tasks call, and the origin of what a call computes last. Calls in other functions
// are not timed.
// CHECK: module attributes {stablexla.timed =
// CHECK-SAME: {{\[}}["share", "kernel", "", ""], ["call", "kernel", "jit(f)/tanh", "model.py:3"], ["call", "kernel", "", ""]]}
// CHECK: llvm.func @stablexla_mark(i64)
// CHECK-LABEL: llvm.func @kernel(
// CHECK-NEXT: llvm.call @helper
// CHECK-NEXT: llvm.return
// CHECK-LABEL: llvm.func internal @kernel_task(
// CHECK: %[[M0:.*]] = llvm.mlir.constant(0 : i64)
// CHECK-NEXT: llvm.call @stablexla_mark(%[[M0]])
// CHECK-NEXT: llvm.call @kernel(
// CHECK-NEXT: %[[M1:.*]] = llvm.mlir.constant(1 : i64)
// CHECK-NEXT: llvm.call @stablexla_mark(%[[M1]])
// CHECK-LABEL: llvm.func @main(
// CHECK: %[[M2:.*]] = llvm.mlir.constant(2 : i64)
// CHECK-NEXT: llvm.call @stablexla_mark(%[[M2]])
// CHECK-NEXT: llvm.call @stablexla_launch_0(
// CHECK-NEXT: %[[M3:.*]] = llvm.mlir.constant(3 : i64)
// CHECK-NEXT: llvm.call @stablexla_mark(%[[M3]])
// CHECK: llvm.mlir.constant(4 : i64)
// CHECK: llvm.call @kernel(
// CHECK: llvm.mlir.constant(5 : i64)
llvm.func @helper()
llvm.func @stablexla_launch_0(!llvm.ptr, i64, i64)
llvm.func @kernel(%lo: i64, %hi: i64) {
  llvm.call @helper() : () -> ()
  llvm.return
}
llvm.func internal @kernel_task(%context: !llvm.ptr, %lo: i64, %hi: i64) {
  llvm.call @kernel(%lo, %hi) : (i64, i64) -> ()
  llvm.return
}
llvm.func @main(%n: i64) {
  %task = llvm.mlir.addressof @kernel_task : !llvm.ptr
  llvm.call @stablexla_launch_0(%task, %n, %n) : (!llvm.ptr, i64, i64) -> ()
    loc(fused["jit(f)/dot_general"("model.py":2:1), "jit(f)/tanh"(callsite("f"("model.py":3:4) at "model.py":5:6))])
  llvm.call @kernel(%n, %n) : (i64, i64) -> ()
  llvm.return
}

// -----

// Where nothing is called there are no marks.
// CHECK-LABEL: // -----
// CHECK: module attributes {stablexla.timed = []}
// CHECK-NOT: stablexla_mark
llvm.func @main() {
  llvm.return
}
