// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-check-nvvm{chip=sm_80})' | FileCheck %s

// What LLVM has instructions for passes, unchanged, and so does a launch within the chip's limits.
// CHECK: llvm.func @kernel
// CHECK: llvm.fadd
// CHECK: gpu.launch_func
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @kernel(%x: f32) attributes {gpu.kernel, nvvm.kernel} {
      %0 = llvm.fadd %x, %x : f32
      llvm.return
    }
  }
  func.func @main(%x: f32) {
    %one = arith.constant 1 : index
    %threads = arith.constant 1024 : index
    gpu.launch_func @kernels::@kernel blocks in (%one, %one, %one) threads in (%threads, %one, %one) args(%x : f32)
    return
  }
}
