// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-expand-angles)' | FileCheck %s

// The angle alone is written out: upstream would fold that of 0 and 0 to NaN. Other functions are left alone.
// CHECK-LABEL: func.func @angle
// CHECK-NOT: math.atan2
// CHECK: math.exp %{{.*}} : f32
// CHECK: math.atan %{{.*}} : f32
// CHECK-NOT: math.atan2
// CHECK: arith.select
// CHECK: return
func.func @angle(%x: f32, %y: f32) -> f32 {
  %0 = math.exp %x : f32
  %1 = math.atan %0 : f32
  %2 = math.atan2 %y, %1 : f32
  return %2 : f32
}

// CHECK-LABEL: func.func @of_zeros
// CHECK-NOT: math.atan2
// CHECK-NOT: 0x7FC00000
// CHECK: return
func.func @of_zeros() -> f32 {
  %zero = arith.constant 0.0 : f32
  %0 = math.atan2 %zero, %zero : f32
  return %0 : f32
}
