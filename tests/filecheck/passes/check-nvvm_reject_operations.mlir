// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-check-nvvm)' 2>&1 | FileCheck %s

// What nobody has lowered is counted by its name; what stands outside of kernels is not looked at.
// CHECK: error: {{.*}}left over: math.exp (2x), arith.addf (1x)
// CHECK-NOT: math.log
gpu.module @kernels {
  llvm.func @kernel(%x: f32) {
    %0 = math.exp %x : f32
    %1 = math.exp %0 : f32
    %2 = arith.addf %1, %1 : f32
    llvm.return
  }
}
func.func @main(%x: f32) -> f32 {
  %0 = math.log %x : f32
  return %0 : f32
}
