// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-drop-unused)' | FileCheck %s

// Chains of operations without users go; a call with effects and control flow stay.
// CHECK-LABEL: func.func public @main(
// CHECK-NOT: math.exp
// CHECK-NOT: arith.addf
// CHECK: call @told() {stablexla.effect}
// CHECK: scf.if
// CHECK: return
func.func private @told() -> f32
func.func public @main(%n: f32, %go: i1) -> f32 {
  %0 = math.exp %n : f32
  %1 = arith.addf %0, %n : f32
  %2 = func.call @told() {stablexla.effect} : () -> f32
  %3 = scf.if %go -> f32 {
    scf.yield %n : f32
  } else {
    scf.yield %n : f32
  }
  return %n : f32
}
