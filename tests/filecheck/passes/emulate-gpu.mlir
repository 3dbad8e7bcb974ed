// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-emulate-gpu)' | FileCheck %s

// A kernel is a function that is told its block and thread; a launch is loops over blocks and threads.
// CHECK-NOT: gpu.
// CHECK: func.func private @kernel(%[[X:.*]]: memref<64xf32>, %[[BLOCK:[a-z0-9]+]]: index,
// CHECK-NOT: gpu.
// CHECK: arith.muli %[[BLOCK]],
// CHECK: return
// CHECK: func.func @main(%[[Y:.*]]: memref<64xf32>)
// CHECK-DAG: %[[BLOCKS:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[THREADS:.*]] = arith.constant 32 : index
// CHECK: scf.for %[[B:.*]] = %{{.*}} to %[[BLOCKS]]
// CHECK: scf.for %[[T:.*]] = %{{.*}} to %[[THREADS]]
// CHECK: func.call @kernel(%[[Y]], %[[B]], %{{.*}}, %{{.*}}, %[[T]],
// CHECK-NOT: gpu.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel(%x: memref<64xf32>) kernel attributes {stablexla.launch = {blocks = 2 : i64, shared = 0 : i64, threads = 32 : i64}} {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %0 = arith.muli %b, %d : index
      %1 = arith.addi %0, %t : index
      %2 = memref.load %x[%1] : memref<64xf32>
      %3 = arith.negf %2 : f32
      memref.store %3, %x[%1] : memref<64xf32>
      gpu.return
    }
  }
  func.func @main(%x: memref<64xf32>) {
    %one = arith.constant 1 : index
    %blocks = arith.constant 2 : index
    %threads = arith.constant 32 : index
    gpu.launch_func @kernels::@kernel blocks in (%blocks, %one, %one) threads in (%threads, %one, %one) args(%x : memref<64xf32>)
    return
  }
}

// -----

// Threads that wait for each other are run all at once, in a call that becomes one of the runtime's.
// CHECK-LABEL: // -----
// CHECK: func.func private @kernel(
// CHECK: call @stablexla_emulated_barrier()
// CHECK: func.func private @kernel_threads({{.*}}%[[LO:[a-z0-9]+]]: index, %[[HI:[a-z0-9]+]]: index)
// CHECK: scf.for %{{.*}} = %[[LO]] to %[[HI]]
// CHECK: func.call @kernel(
// CHECK: func.func @main(
// CHECK: call @kernel_threads({{.*}}) {stablexla.grain = 1 : i64}
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @kernel() kernel attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}} {
      gpu.barrier
      gpu.return
    }
  }
  func.func @main() {
    %one = arith.constant 1 : index
    %threads = arith.constant 32 : index
    gpu.launch_func @kernels::@kernel blocks in (%one, %one, %one) threads in (%threads, %one, %one)
    return
  }
}
