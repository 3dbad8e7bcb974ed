// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-align-loops)' | FileCheck %s

// A loop carries the same values through its condition, its body and its results.
// CHECK-LABEL: func.func public @main(
// CHECK: %[[LOOP:.*]]:2 = scf.while (%[[A:.*]] = %arg0, %[[B:.*]] = %arg1) : (i32, f32) -> (i32, f32)
// CHECK: scf.condition(%{{.*}}) %[[A]], %[[B]] : i32, f32
// CHECK: return %[[LOOP]]#1
func.func public @main(%n: i32, %x: f32) -> f32 {
  %one = arith.constant 1 : i32
  %0 = scf.while (%i = %n, %y = %x) : (i32, f32) -> f32 {
    %go = arith.cmpi slt, %i, %one : i32
    scf.condition(%go) %y : f32
  } do {
  ^bb0(%y: f32):
    %z = arith.addf %y, %y : f32
    scf.yield %one, %z : i32, f32
  }
  return %0 : f32
}
