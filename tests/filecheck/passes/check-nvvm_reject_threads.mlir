// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-check-nvvm{chip=sm_80})' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}kernel: a block has at most 1024 threads, not 2048
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @kernel(%x: f32) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
  func.func @main(%x: f32) {
    %one = arith.constant 1 : index
    %threads = arith.constant 2048 : index
    %bytes = arith.constant 200000 : i32
    gpu.launch_func @kernels::@kernel blocks in (%one, %one, %one) threads in (%threads, %one, %one) args(%x : f32)
    return
  }
}
