// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-prepare-groups)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}the condition of a loop hands on what it computed: arith.addi
func.func public @main(%n: i32) -> i32 {
  %one = arith.constant 1 : i32
  %0 = scf.while (%i = %n) : (i32) -> i32 {
    %go = arith.cmpi slt, %i, %one : i32
    %next = arith.addi %i, %one : i32
    scf.condition(%go) %next : i32
  } do {
  ^bb0(%i: i32):
    scf.yield %i : i32
  }
  return %0 : i32
}
