// The pass on its own: bf16 to f32 is a shift, f32 to bf16 an addition, also on vectors; f16 is left to the instruction.
// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-expand-small-floats)" | FileCheck %s

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
