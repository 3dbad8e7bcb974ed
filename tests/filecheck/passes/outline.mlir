// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-outline)' | FileCheck %s

// The operations of a group become a private function that is named for its kind, with the constants and initial values
// that they need; equal functions are one. Calls come in the order of what they need. What has no group stays in main,
// and what nobody reads is dropped.
// CHECK: func.func private @loop_0(%[[X:.*]]: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "loop"}
// CHECK: tensor.empty
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00
// CHECK: linalg.generic
// CHECK-NOT: stablexla.group
// CHECK: arith.mulf %{{.*}}, %[[TWO]]
// CHECK-NOT: func.func private
// CHECK: func.func public @main(%[[A:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>)
// CHECK-NEXT: %[[FIRST:.*]] = call @loop_0(%[[A]])
// CHECK-NEXT: %[[SECOND:.*]] = call @loop_0(%[[B]])
// CHECK-NEXT: %[[SHAPED:.*]] = tensor.expand_shape %[[SECOND]]
// CHECK-NEXT: return %[[FIRST]], %[[SHAPED]]
#id = affine_map<(d0) -> (d0)>
func.func public @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<2x4xf32>) {
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {stablexla.group = "loop.0"} {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %two : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {stablexla.group = "loop.1"} {
  ^bb0(%a: f32, %b: f32):
    %c = arith.mulf %a, %two : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {stablexla.group = "loop.2"} {
  ^bb0(%a: f32, %b: f32):
    %c = arith.negf %a : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %3 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 4] : tensor<8xf32> into tensor<2x4xf32>
  return %0, %3 : tensor<8xf32>, tensor<2x4xf32>
}

// -----

// A kernel that a lowering rule made is shared, too, and dropped where nobody calls it; a group's operations need not
// stand together.
// CHECK-LABEL: // -----
// CHECK-NOT: unused
// CHECK: func.func private @sort_0(
// CHECK: func.func private @loop_0(%{{.*}}: tensor<8xf32>, %{{.*}}: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
// CHECK: arith.negf
// CHECK: arith.addf
// CHECK: func.func public @main
// CHECK-NEXT: %[[SORTED:.*]] = call @sort_0(%arg0)
// CHECK-NEXT: %[[BOTH:.*]]:2 = call @loop_0(%arg0, %[[SORTED]])
// CHECK-NEXT: %[[LAST:.*]] = call @sort_0(%[[BOTH]]#0)
// CHECK-NEXT: return %[[BOTH]]#1, %[[LAST]]
#id = affine_map<(d0) -> (d0)>
func.func private @made_first(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "sort"} {
  return %x : tensor<8xf32>
}
func.func private @made_second(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "sort"} {
  return %x : tensor<8xf32>
}
func.func private @unused(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "fft"} {
  return %x : tensor<8xf32>
}
func.func public @main(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {stablexla.group = "loop.0"} {
  ^bb0(%a: f32, %b: f32):
    %c = arith.negf %a : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %1 = call @made_first(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%0, %1 : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {stablexla.group = "loop.0"} {
  ^bb0(%a: f32, %b: f32, %d: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %3 = call @made_second(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %2, %3 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Combiners that lowering rules hand on are shared like kernels, and dropped with the kernel that nobody calls.
// CHECK-LABEL: // -----
// CHECK: func.func private @combiner_0(%{{.*}}: f32, %{{.*}}: f32) -> f32 attributes {stablexla.combiner}
// CHECK-NEXT: arith.addf
// CHECK: func.func private @scan_0(
// CHECK-SAME: stablexla.combiner = {function = @combiner_0, uniforms = []}
// CHECK: func.func private @combiner_1(
// CHECK-NEXT: arith.mulf
// CHECK: func.func private @scan_1(
// CHECK-SAME: stablexla.combiner = {function = @combiner_1, uniforms = []}
// CHECK-NOT: func.func private
// CHECK: func.func public @main
// CHECK-NEXT: call @scan_0
// CHECK-NEXT: call @scan_1
// CHECK-NEXT: call @scan_0
func.func private @a(%x: f32, %y: f32) -> f32 attributes {stablexla.combiner} {
  %0 = arith.addf %x, %y : f32
  return %0 : f32
}
func.func private @first(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "scan", stablexla.combiner = {function = @a, uniforms = []}} {
  return %x : tensor<8xf32>
}
func.func private @b(%x: f32, %y: f32) -> f32 attributes {stablexla.combiner} {
  %0 = arith.mulf %x, %y : f32
  return %0 : f32
}
func.func private @second(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "scan", stablexla.combiner = {function = @b, uniforms = []}} {
  return %x : tensor<8xf32>
}
func.func private @c(%x: f32, %y: f32) -> f32 attributes {stablexla.combiner} {
  %0 = arith.addf %x, %y : f32
  return %0 : f32
}
func.func private @third(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "scan", stablexla.combiner = {function = @c, uniforms = []}} {
  return %x : tensor<8xf32>
}
func.func private @d(%x: f32, %y: f32) -> f32 attributes {stablexla.combiner} {
  %0 = arith.subf %x, %y : f32
  return %0 : f32
}
func.func private @unused(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "scan", stablexla.combiner = {function = @d, uniforms = []}} {
  return %x : tensor<8xf32>
}
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = call @first(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = call @second(%0) : (tensor<8xf32>) -> tensor<8xf32>
  %2 = call @third(%1) : (tensor<8xf32>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
