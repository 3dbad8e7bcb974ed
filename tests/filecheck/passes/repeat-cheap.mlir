// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-repeat-cheap)' | FileCheck %s

// A difference from a row's mean, 256 KiB, is computed again for its second user; one of 256 elements is not.
// CHECK-LABEL: func.func public @main(
// CHECK-COUNT-2: arith.subf {{.*}} : f32
// CHECK: math.log
// CHECK: arith.negf {{.*}} : f32
// CHECK-NOT: arith.negf
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#line = affine_map<(d0) -> (d0)>
func.func public @main(%x: tensor<256x256xf32>, %mean: tensor<256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>, tensor<256xf32>, tensor<256xf32>) {
  %e = tensor.empty() : tensor<256x256xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %mean : tensor<256x256xf32>, tensor<256xf32>) outs(%e : tensor<256x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.subf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<256x256xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%d : tensor<256x256xf32>) outs(%e : tensor<256x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.exp %a : f32
    linalg.yield %s : f32
  } -> tensor<256x256xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%d : tensor<256x256xf32>) outs(%e : tensor<256x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.log %a : f32
    linalg.yield %s : f32
  } -> tensor<256x256xf32>
  %f = tensor.empty() : tensor<256xf32>
  %n = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]} ins(%mean : tensor<256xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.negf %a : f32
    linalg.yield %s : f32
  } -> tensor<256xf32>
  %r = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]} ins(%n : tensor<256xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.sin %a : f32
    linalg.yield %s : f32
  } -> tensor<256xf32>
  %t = linalg.generic {indexing_maps = [#line, #line], iterator_types = ["parallel"]} ins(%n : tensor<256xf32>) outs(%f : tensor<256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.cos %a : f32
    linalg.yield %s : f32
  } -> tensor<256xf32>
  return %p, %q, %r, %t : tensor<256x256xf32>, tensor<256x256xf32>, tensor<256xf32>, tensor<256xf32>
}

// -----

// A transpose is not: each copy would be a pass over memory.
// CHECK-LABEL: func.func public @main(
// CHECK: attrs = {stablexla.transpose}
// CHECK-NOT: stablexla.transpose
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#swapped = affine_map<(d0, d1) -> (d1, d0)>
func.func public @main(%x: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %e = tensor.empty() : tensor<256x256xf32>
  %d = linalg.generic {indexing_maps = [#swapped, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<256x256xf32>) outs(%e : tensor<256x256xf32>) attrs = {stablexla.transpose} {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<256x256xf32>
  %p = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%d : tensor<256x256xf32>) outs(%e : tensor<256x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.exp %a : f32
    linalg.yield %s : f32
  } -> tensor<256x256xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%d : tensor<256x256xf32>) outs(%e : tensor<256x256xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = math.log %a : f32
    linalg.yield %s : f32
  } -> tensor<256x256xf32>
  return %p, %q : tensor<256x256xf32>, tensor<256x256xf32>
}
