// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-align-loops)' 2>&1 | FileCheck %s

// The values that a condition forwards are its arguments; one that it computed would be computed twice.
// CHECK: the condition of a loop hands on what it computed: arith.addi
func.func public @main(%n: i32) -> i32 {
  %one = arith.constant 1 : i32
  %0 = scf.while (%i = %n) : (i32) -> i32 {
    %next = arith.addi %i, %one : i32
    %go = arith.cmpi slt, %next, %one : i32
    scf.condition(%go) %next : i32
  } do {
  ^bb0(%i: i32):
    scf.yield %i : i32
  }
  return %0 : i32
}
