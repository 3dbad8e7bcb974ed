// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-map-kernels{chip=sm_80})' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-map-kernels{chip=sm_80 general-only=true})' | FileCheck %s --check-prefix=GENERAL

// Beside a kernel's function on tensors there is one that says what a thread does, and asks for blocks and threads: 250
// vectors of four elements are one block of 256. Main is left alone, and so are functions that are no kernels.
// CHECK: func.func private @loop_0_impl(%{{.*}}: memref<1000xf32> {llvm.align = 16 : i64, llvm.noalias}, %{{.*}}: memref<1000xf32> {llvm.align = 16 : i64, llvm.noalias}, %{{.*}}: index, %{{.*}}: index) attributes {{{.*}}stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 256 : i64}}
// CHECK: gpu.block_id
// CHECK: gpu.thread_id
// CHECK: vector.load %{{.*}} : memref<1000xf32>, vector<4xf32>
// CHECK: arith.negf %{{.*}} : vector<4xf32>
// CHECK: func.func private @loop_0(%{{.*}}: tensor<1000xf32>) -> tensor<1000xf32> attributes {stablexla.impl = {{.*}}path = "emitted"
// CHECK: func.func private @no_kernel(
// CHECK-NOT: stablexla.impl
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: call @loop_0(%arg0) : (tensor<1000xf32>) -> tensor<1000xf32>

// GENERAL: stablexla.launch =
// GENERAL-NOT: vector.
// GENERAL: arith.negf %{{.*}} : f32
// GENERAL: stablexla.impl = {{.*}}path = "general"
#id = affine_map<(d0) -> (d0)>
func.func private @loop_0(%x: tensor<1000xf32>) -> tensor<1000xf32> attributes {stablexla.kernel = "loop"} {
  %e = tensor.empty() : tensor<1000xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<1000xf32>) outs(%e : tensor<1000xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.negf %a : f32
    linalg.yield %c : f32
  } -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}
func.func private @no_kernel(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  return %x : tensor<1000xf32>
}
func.func public @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %0 = call @loop_0(%x) : (tensor<1000xf32>) -> tensor<1000xf32>
  return %0 : tensor<1000xf32>
}

// -----

// A kernel that no emitter takes goes the general path.
// CHECK-LABEL: // -----
// CHECK: func.func private @general_0_impl({{.*}}stablexla.launch =
// CHECK: stablexla.impl = {{.*}}path = "general"
func.func private @general_0(%x: tensor<8xf32>, %i: index) -> tensor<8xf32> attributes {stablexla.kernel = "unheard_of"} {
  %n = tensor.extract %x[%i] : tensor<8xf32>
  %0 = tensor.insert %n into %x[%i] : tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func public @main(%x: tensor<8xf32>, %i: index) -> tensor<8xf32> {
  %0 = call @general_0(%x, %i) : (tensor<8xf32>, index) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
