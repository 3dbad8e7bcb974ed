// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-launch-gpu)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}main copies memref<4xf32, strided<[2]>>, whose elements do not lie one beside the other
module {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "the text">]
  func.func @main(%x: memref<4xf32, strided<[2]>>, %y: memref<4xf32>) {
    memref.copy %x, %y : memref<4xf32, strided<[2]>> to memref<4xf32>
    return
  }
}
