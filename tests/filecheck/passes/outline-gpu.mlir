// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-outline-gpu)' | FileCheck %s

// What a thread does moves into a GPU module, without the range of items, and main launches it with the blocks, threads
// and shared bytes that it asks for. How many threads there are is known inside. Numbers below a byte are passed as
// bytes. What nobody launches is dropped; what runs on the host stays.
// CHECK: gpu.container_module
// CHECK: gpu.module @kernels
// CHECK: gpu.func @kernel(%[[X:.*]]: memref<64xf32> {llvm.noalias}, %[[P:.*]]: i8) kernel attributes {known_block_size = array<i32: 32, 1, 1>, known_grid_size = array<i32: 2, 1, 1>, stablexla.launch = {blocks = 2 : i64, shared = 128 : i64, threads = 32 : i64}}
// CHECK: arith.trunci %[[P]] : i8 to i1
// CHECK-NOT: gpu.block_dim
// CHECK: gpu.block_id
// CHECK: gpu.return
// CHECK-NOT: @unused
// CHECK: func.func private @of_host(
// CHECK: func.func @main(%[[Y:.*]]: memref<64xf32>, %[[Q:.*]]: i1)
// CHECK: %[[BYTE:.*]] = arith.extui %[[Q]] : i1 to i8
// CHECK: gpu.launch_func {{ ?}}@kernels::@kernel blocks in (%[[B:.*]], %[[ONE:.*]], %[[ONE]]) threads in (%[[T:.*]], %[[ONE]], %[[ONE]]) dynamic_shared_memory_size %{{.*}} args(%[[Y]] : memref<64xf32>, %[[BYTE]] : i8)
// CHECK: call @of_host(%[[Y]])
func.func private @kernel(%x: memref<64xf32> {llvm.noalias}, %p: i1, %lo: index, %hi: index) attributes {stablexla.launch = {blocks = 2 : i64, shared = 128 : i64, threads = 32 : i64}} {
  %b = gpu.block_id x
  %d = gpu.block_dim x
  %0 = arith.muli %b, %d : index
  %1 = memref.load %x[%0] : memref<64xf32>
  %2 = arith.negf %1 : f32
  %3 = arith.select %p, %1, %2 : f32
  memref.store %3, %x[%0] : memref<64xf32>
  return
}
func.func private @unused(%x: memref<64xf32> {llvm.noalias}, %lo: index, %hi: index) attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}} {
  return
}
func.func private @of_host(%x: memref<64xf32>) {
  return
}
func.func @main(%x: memref<64xf32>, %p: i1) {
  %lo = arith.constant 0 : index
  %hi = arith.constant 64 : index
  call @kernel(%x, %p, %lo, %hi) : (memref<64xf32>, i1, index, index) -> ()
  call @of_host(%x) : (memref<64xf32>) -> ()
  return
}
