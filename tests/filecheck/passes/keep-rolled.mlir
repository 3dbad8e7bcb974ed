// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-keep-rolled)' | FileCheck %s

// Branches back to the head of a loop are marked; those forward are not. The request is taken off.
// CHECK: #[[UNROLL:.*]] = #llvm.loop_unroll<disable = true>
// CHECK: #[[ROLLED:.*]] = #llvm.loop_annotation<unroll = #[[UNROLL]]>
// CHECK-LABEL: llvm.func @asks(
// CHECK-NOT: stablexla.rolled
// CHECK: llvm.br ^bb1(%{{.*}} : i64){{$}}
// CHECK: llvm.cond_br %{{.*}}, ^bb2, ^bb3{{$}}
// CHECK: llvm.br ^bb1(%{{.*}} : i64) {loop_annotation = #[[ROLLED]]}
// CHECK: llvm.return
llvm.func @asks(%n: i64) attributes {stablexla.rolled} {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  llvm.br ^head(%zero : i64)
^head(%i: i64):
  %more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %more, ^body, ^end
^body:
  %next = llvm.add %i, %one : i64
  llvm.br ^head(%next : i64)
^end:
  llvm.return
}

// A function that does not ask is left alone.
// CHECK-LABEL: llvm.func @others(
// CHECK-NOT: loop_annotation
// CHECK: llvm.return
llvm.func @others(%p: i1) {
  llvm.br ^head
^head:
  llvm.cond_br %p, ^head, ^end
^end:
  llvm.return
}
