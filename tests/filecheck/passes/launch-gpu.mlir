// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-launch-gpu)' | FileCheck %s

// A launch hands the runtime the number of the kernel, blocks, threads, shared bytes, and the places of its parameters;
// a copy, and numbers that are read and written, are calls, too. The PTX and a table of kernels are attributes.
// CHECK: module attributes {stablexla.gpu_image = "the text", stablexla.gpu_kernels = [{name = "kernel", shared_bytes = 128 : i64}]}
// CHECK-NOT: gpu.
// CHECK: func.func @main(%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>, %[[N:.*]]: i32)
// CHECK: memref.alloca() {alignment = 16 : i64} : memref<32xi8>
// CHECK: memref.extract_aligned_pointer_as_index %[[X]]
// CHECK: llvm.store %[[N]], %{{.*}} : i32
// CHECK-DAG: %[[KERNEL:.*]] = arith.constant 0 : i64
// CHECK-DAG: %[[BLOCKS:.*]] = arith.constant 2 : i64
// CHECK-DAG: %[[THREADS:.*]] = arith.constant 64 : i64
// CHECK-DAG: %[[SHARED:.*]] = arith.constant 128 : i64
// CHECK: call @stablexla_gpu_launch(%[[KERNEL]], %[[BLOCKS]], %[[THREADS]], %[[SHARED]], %{{.*}})
// CHECK: %[[BYTES:.*]] = arith.constant 16 : i64
// CHECK: call @stablexla_gpu_copy(%{{.*}}, %{{.*}}, %[[BYTES]])
// CHECK-NOT: memref.copy
// CHECK: call @stablexla_gpu_read(
// CHECK: %[[READ:.*]] = llvm.load %{{.*}} -> f32
// CHECK: arith.addf %[[READ]], %[[READ]]
// CHECK: call @stablexla_gpu_write(
// CHECK-NOT: memref.store
// CHECK: return
module attributes {gpu.container_module} {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "the text">]
  func.func @main(%x: memref<4xf32>, %y: memref<4xf32>, %n: i32) {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %blocks = arith.constant 2 : index
    %threads = arith.constant 64 : index
    %bytes = arith.constant 128 : i32
    gpu.launch_func @kernels::@kernel blocks in (%blocks, %one, %one) threads in (%threads, %one, %one) dynamic_shared_memory_size %bytes args(%x : memref<4xf32>, %n : i32)
    memref.copy %x, %y : memref<4xf32> to memref<4xf32>
    %0 = memref.load %y[%zero] : memref<4xf32>
    %1 = arith.addf %0, %0 : f32
    memref.store %1, %y[%zero] : memref<4xf32>
    return
  }
}

// -----

// What main computes by itself is left alone, and an empty array is not copied.
// CHECK-LABEL: // -----
// CHECK: func.func @main(
// CHECK-NOT: call
// CHECK: scf.if
// CHECK-NEXT: arith.addi
// CHECK-NOT: call
module {
  gpu.binary @kernels [#gpu.object<#nvvm.target<chip = "sm_80">, assembly = "the text">]
  func.func @main(%x: memref<0xf32>, %y: memref<0xf32>, %n: i32, %p: i1) -> i32 {
    memref.copy %x, %y : memref<0xf32> to memref<0xf32>
    %0 = scf.if %p -> (i32) {
      %1 = arith.addi %n, %n : i32
      scf.yield %1 : i32
    } else {
      scf.yield %n : i32
    }
    return %0 : i32
  }
}
