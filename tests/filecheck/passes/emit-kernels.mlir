// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-emit-kernels{vector-bits=256})' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-emit-kernels{vector-bits=512})' | FileCheck %s --check-prefix=WIDE
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-emit-kernels{general-only=true})' | FileCheck %s --check-prefix=GENERAL

// Beside a kernel's function on tensors there is one on flat buffers, for the work items from one to another; what main
// must know of it is an attribute. Main itself is left alone, and so are functions that are no kernels. A kernel of one work
// item has no loop over them.
// CHECK: func.func private @loop_0_impl(%{{.*}}: memref<1000xf32>, %{{.*}}: memref<1000xf32>, %[[LO:.*]]: index, %[[HI:.*]]: index)
// CHECK-NOT: %[[LO]]
// CHECK: %[[X:.*]] = vector.load %{{.*}} : memref<1000xf32>, vector<8xf32>
// CHECK: %[[Y:.*]] = arith.negf %[[X]] : vector<8xf32>
// CHECK: vector.store %[[Y]]
// CHECK: func.func private @loop_0(%{{.*}}: tensor<1000xf32>) -> tensor<1000xf32> attributes {stablexla.impl = {in_place = [{input = 0 : i64, result = 0 : i64}], packs = [], path = "emitted", phases = [{function = "loop_0_impl",
// CHECK: linalg.generic
// CHECK: func.func private @no_kernel(
// CHECK-NOT: stablexla.impl
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: call @loop_0(%arg0) : (tensor<1000xf32>) -> tensor<1000xf32>

// WIDE: vector.load %{{.*}} : memref<1000xf32>, vector<16xf32>

// The general path has loops over single elements.
// GENERAL: func.func private @loop_0_impl(
// GENERAL-NOT: vector.
// GENERAL: memref.load
// GENERAL: arith.negf %{{.*}} : f32
// GENERAL: stablexla.impl = {{.*}}path = "general"{{.*}}refusal = {{.*}}why = "the pipeline's option general-only
// GENERAL-LABEL: func.func public @main
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

// A kernel that no emitter takes goes the general path, and has the reason; its kind says nothing then.
// CHECK-LABEL: // -----
// CHECK: func.func private @general_0_impl(
// CHECK: stablexla.impl = {{.*}}path = "general"{{.*}}refusal = {hint = "{{.+}}", why = "no emitter takes 'unheard_of'"}
func.func private @general_0(%x: tensor<8xf32>, %i: index) -> tensor<8xf32> attributes {stablexla.kernel = "unheard_of"} {
  %n = tensor.extract %x[%i] : tensor<8xf32>
  %0 = tensor.insert %n into %x[%i] : tensor<8xf32>
  return %0 : tensor<8xf32>
}
func.func public @main(%x: tensor<8xf32>, %i: index) -> tensor<8xf32> {
  %0 = call @general_0(%x, %i) : (tensor<8xf32>, index) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A reduction has its schedule on the functions that were emitted, and with its reason in what main must know.
// CHECK-LABEL: // -----
// CHECK: func.func private @row_0_impl({{.*}} stablexla.schedule = "thread d0; reduced d1; unrolled d1 x4; lane d1 x8"
// CHECK: stablexla.impl = {{.*}}schedule = {steps = "thread d0; reduced d1; unrolled d1 x4; lane d1 x8", why = "contiguous rows: lanes along them"}
// WIDE: stablexla.schedule = "thread d0; reduced d1; unrolled d1 x4; lane d1 x16"
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func private @row_0(%x: tensor<5x1000xf32>) -> tensor<5xf32> attributes {stablexla.kernel = "row"} {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %0 = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<5x1000xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %c = arith.addf %b, %a : f32
    linalg.yield %c : f32
  } -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
func.func public @main(%x: tensor<5x1000xf32>) -> tensor<5xf32> {
  %0 = call @row_0(%x) : (tensor<5x1000xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
