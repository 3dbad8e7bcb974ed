// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-check-stops)' | FileCheck %s

// A main without loops, whose kernels are too small for threads, is left as it is.
// CHECK-LABEL: func.func @main(
// CHECK-NOT: llvm
// CHECK: return
func.func private @small_impl(%lo: index, %hi: index) { return }
func.func @main() {
  %n = arith.constant 1 : index
  call @small_impl(%n, %n) : (index, index) -> ()
  call @small_impl(%n, %n) : (index, index) -> ()
  return
}

// -----

// Between kernels the runtime is asked; the number stands for the kernel.
// CHECK: llvm.func @stablexla_news_address() -> !llvm.ptr
// CHECK: llvm.func @stablexla_look_around(i64)
// CHECK: llvm.func @stablexla_check(i64)
// CHECK-LABEL: func.func @main(
// CHECK: call @kernel_impl(
// CHECK-NEXT: %[[NUMBER:.*]] = arith.constant [[PLACE:[0-9]+]] : i64
// CHECK-NEXT: llvm.call @stablexla_check(%[[NUMBER]]) {stablexla.place = [[PLACE]] : i64}
// CHECK: call @other_impl(
// CHECK-NEXT: arith.constant
// CHECK-NEXT: llvm.call @stablexla_check(
// CHECK: return
func.func private @kernel_impl(%lo: index, %hi: index) { return }
func.func private @other_impl(%lo: index, %hi: index) { return }
func.func @main() {
  %n = arith.constant 1 : index
  call @kernel_impl(%n, %n) {stablexla.grain = 1 : i64} : (index, index) -> ()
  call @other_impl(%n, %n) : (index, index) -> ()
  return
}

// -----

// A loop without kernels has a check at its back edge; one with a kernel has that of the kernel alone.
// CHECK-LABEL: func.func @main(
// CHECK: scf.for
// CHECK-NEXT: %[[WORD:.*]] = llvm.load volatile %{{.*}} : !llvm.ptr -> i32
// CHECK: %[[SOME:.*]] = arith.cmpi ne, %[[WORD]], %{{.*}} : i32
// CHECK-NEXT: scf.if %[[SOME]] {
// CHECK: llvm.call @stablexla_look_around
// CHECK: scf.for
// CHECK-NEXT: call @kernel_impl(
// CHECK: llvm.call @stablexla_check(
// CHECK-NOT: llvm.load
// CHECK: return
func.func private @kernel_impl(%lo: index, %hi: index) { return }
func.func @main(%n: index, %one: index) {
  scf.for %i = %one to %n step %one {
  }
  scf.for %i = %one to %n step %one {
    func.call @kernel_impl(%n, %n) : (index, index) -> ()
  }
  return
}

// -----

// A loop that counts to a constant has none where it ends at once; counting on for ever is no such loop.
// CHECK-LABEL: func.func @main(
// CHECK: scf.while
// CHECK-NOT: llvm.load
// CHECK: scf.while
// CHECK: llvm.load volatile
// CHECK: scf.while
// CHECK: llvm.load volatile
// CHECK: return
func.func @main() {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %few = arith.constant 600 : i32
  %many = arith.constant 600000000 : i32
  %minus = arith.constant -1 : i32
  %a = scf.while (%i = %zero) : (i32) -> i32 {
    %p = arith.cmpi slt, %i, %few : i32
    scf.condition(%p) %i : i32
  } do {
  ^bb0(%i: i32):
    %j = arith.addi %i, %one : i32
    scf.yield %j : i32
  }
  %b = scf.while (%i = %zero) : (i32) -> i32 {
    %p = arith.cmpi slt, %i, %many : i32
    scf.condition(%p) %i : i32
  } do {
  ^bb0(%i: i32):
    %j = arith.addi %i, %one : i32
    scf.yield %j : i32
  }
  %c = scf.while (%i = %zero) : (i32) -> i32 {
    %p = arith.cmpi slt, %i, %few : i32
    scf.condition(%p) %i : i32
  } do {
  ^bb0(%i: i32):
    %j = arith.addi %i, %minus : i32
    scf.yield %j : i32
  }
  return
}

// -----

// Inside of kernels only those loops are looked at that the program need not end.
// CHECK-LABEL: func.func private @general_0_impl(
// CHECK-NOT: stablexla.unbounded
// CHECK: llvm.call @stablexla_news_address()
// CHECK: } do {
// CHECK: llvm.load volatile
// CHECK: llvm.call @stablexla_look_around
// CHECK: scf.yield
// CHECK-LABEL: func.func private @emitted_impl(
// CHECK-NOT: llvm
// CHECK-LABEL: func.func @main(
func.func private @general_0_impl(%lo: index, %hi: index) attributes {stablexla.unbounded} {
  %r = scf.while (%i = %lo) : (index) -> index {
    %p = arith.cmpi slt, %i, %hi : index
    scf.condition(%p) %i : index
  } do {
  ^bb0(%i: index):
    scf.yield %i : index
  }
  return
}
func.func private @emitted_impl(%lo: index, %hi: index) {
  %r = scf.while (%i = %lo) : (index) -> index {
    %p = arith.cmpi slt, %i, %hi : index
    scf.condition(%p) %i : index
  } do {
  ^bb0(%i: index):
    scf.yield %i : index
  }
  return
}
func.func @main(%n: index) {
  call @general_0_impl(%n, %n) : (index, index) -> ()
  call @emitted_impl(%n, %n) : (index, index) -> ()
  return
}
