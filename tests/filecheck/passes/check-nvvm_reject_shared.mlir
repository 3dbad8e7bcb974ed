// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-check-nvvm{chip=sm_80})' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}kernel: its blocks share 200000 bytes; those of sm_80 can share {{[0-9]+}}
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @kernel(%x: f32) attributes {gpu.kernel, nvvm.kernel} {
      llvm.return
    }
  }
  func.func @main(%x: f32) {
    %one = arith.constant 1 : index
    %threads = arith.constant 128 : index
    %bytes = arith.constant 200000 : i32
    gpu.launch_func @kernels::@kernel blocks in (%one, %one, %one) threads in (%threads, %one, %one) dynamic_shared_memory_size %bytes args(%x : f32)
    return
  }
}
