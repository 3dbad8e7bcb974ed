// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-math-to-intrinsics)' | FileCheck %s

// Kernels call LLVM's intrinsics for what GPUs have instructions for. Functions that they have none for are left alone:
// they have been written out before.
// CHECK-LABEL: gpu.func @kernel(
// CHECK-SAME: %[[X:.*]]: f32, %[[V:.*]]: vector<2xf64>)
// CHECK-NEXT: %[[ROOT:.*]] = llvm.call_intrinsic "llvm.sqrt"(%[[X]]) : (f32) -> f32
// CHECK-NEXT: llvm.call_intrinsic "llvm.fma"(%[[ROOT]], %[[X]], %[[X]]) : (f32, f32, f32) -> f32
// CHECK-NEXT: llvm.call_intrinsic "llvm.fabs"(%[[V]]) : (vector<2xf64>) -> vector<2xf64>
// CHECK-NEXT: math.exp %[[X]] : f32
gpu.module @kernels {
  gpu.func @kernel(%x: f32, %v: vector<2xf64>) kernel {
    %0 = math.sqrt %x : f32
    %1 = math.fma %0, %x, %x : f32
    %2 = math.absf %v : vector<2xf64>
    %3 = math.exp %x : f32
    gpu.return
  }
}

// So is what the host computes.
// CHECK-LABEL: func.func @main
// CHECK: math.sqrt
func.func @main(%x: f32) -> f32 {
  %0 = math.sqrt %x : f32
  return %0 : f32
}
