// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-launch-gpu)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}memref.alloc works on an array in main, where only kernels do
module {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "the text">]
  func.func @main() {
    %0 = memref.alloc() : memref<4xf32>
    return
  }
}
