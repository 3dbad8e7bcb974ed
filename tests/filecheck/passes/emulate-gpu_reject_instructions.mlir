// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-emulate-gpu)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}kernel: the CPU cannot run nvvm.cp.async.wait.group
// CHECK-NEXT: try: an emitter that asks `emulated`
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel() kernel attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}} {
      nvvm.cp.async.wait.group 0
      gpu.return
    }
  }
}
