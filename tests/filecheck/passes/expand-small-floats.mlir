// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-expand-small-floats)" | FileCheck %s
// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-expand-small-floats{to-bf16=instruction})" | FileCheck %s --check-prefix=INSTRUCTION
// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-expand-small-floats{to-bf16=any-nans})" | FileCheck %s --check-prefix=ANY

// The pass on its own: bf16 to f32 is a shift, f32 to bf16 an addition, also on vectors; f16 is left to the instruction.

// CHECK-LABEL: func.func @widen
// CHECK: %[[BITS:.*]] = arith.bitcast %{{.*}} : vector<8xbf16> to vector<8xi16>
// CHECK: %[[WIDE:.*]] = arith.extui %[[BITS]]
// CHECK: %[[UP:.*]] = arith.shli %[[WIDE]]
// CHECK: arith.bitcast %[[UP]] : vector<8xi32> to vector<8xf32>
func.func @widen(%x: vector<8xbf16>) -> vector<8xf32> {
  %0 = arith.extf %x : vector<8xbf16> to vector<8xf32>
  return %0 : vector<8xf32>
}

// CHECK-LABEL: func.func @narrow
// CHECK-NOT: arith.truncf
// CHECK: arith.cmpf uno
// CHECK: arith.select
// CHECK: arith.trunci %{{.*}} : i32 to i16
func.func @narrow(%x: f32) -> bf16 {
  %0 = arith.truncf %x : f32 to bf16
  return %0 : bf16
}

// CHECK-LABEL: func.func @half
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK: arith.extf %{{.*}} : f16 to f32
func.func @half(%x: f32) -> f32 {
  %0 = arith.truncf %x : f32 to f16
  %1 = arith.extf %0 : f16 to f32
  return %1 : f32
}

// A sum of numbers is a NaN with zeros in the lower half on x86, and no such one on a GPU.
// CHECK-LABEL: func.func @sum
// CHECK-NOT: arith.cmpf uno
// INSTRUCTION-LABEL: func.func @sum
// INSTRUCTION: %[[SUM:.*]] = arith.addf
// INSTRUCTION-NEXT: arith.truncf %[[SUM]] : f32 to bf16
// ANY-LABEL: func.func @sum
// ANY: arith.cmpf uno
// ANY: arith.select
func.func @sum(%x: bf16) -> bf16 {
  %0 = arith.extf %x : bf16 to f32
  %1 = arith.addf %0, %0 : f32
  %2 = arith.truncf %1 : f32 to bf16
  return %2 : bf16
}

// By way of an f32 that was rounded to odd.
// CHECK-LABEL: func.func @from_f64
// INSTRUCTION-LABEL: func.func @from_f64
// INSTRUCTION: arith.cmpf one
// INSTRUCTION: arith.truncf %{{.*}} : f32 to bf16
func.func @from_f64(%x: f64) -> bf16 {
  %0 = arith.truncf %x : f64 to bf16
  return %0 : bf16
}
