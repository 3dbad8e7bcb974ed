// RUN: stablexla-opt %s --target=gpu:sm_80 --stage=buffers | FileCheck %s --check-prefix=BUFFERS
// RUN: stablexla-opt %s --target=gpu:sm_80 --stage=kernels | stablexla-opt - --target=gpu:sm_80 --stage=gpu | FileCheck %s --check-prefix=GPU
// RUN: stablexla-opt %s --target=gpu:sm_80 --stage=nvvm | FileCheck %s --check-prefix=NVVM

// A kernel is what one thread does, and says how many there are.
// BUFFERS: func.func private @loop_0_impl({{.*}}) attributes {{.*}}stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}
// BUFFERS: gpu.thread_id  x
// BUFFERS: vector.load
// BUFFERS: func.func public @main

// GPU: gpu.module @kernels
// GPU: gpu.func @loop_0_impl({{.*}}) kernel
// GPU: func.func {{.*}}@main
// GPU: gpu.launch_func  @kernels::@loop_0_impl blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1)

// NVVM: gpu.module @kernels [#nvvm.target<O = 3, chip = "sm_80", features = "+ptx78">]
// NVVM: llvm.func @loop_0_impl({{.*}}nvvm.kernel

func.func public @main(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.add %x, %y : tensor<64xf32>
  return %0 : tensor<64xf32>
}
