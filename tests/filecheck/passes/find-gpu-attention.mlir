// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-find-gpu-attention)' | FileCheck %s

// Softmax of a product of matrices, multiplied by a third one, is one kernel.
// CHECK: func.func private @attention.0(%{{.*}}: tensor<2x64x16xf32>, %{{.*}}: tensor<2x64x16xf32>, %{{.*}}: tensor<2x64x16xf32>) -> tensor<2x64x16xf32> attributes {stablexla.kernel = "attention"}
// CHECK: arith.maximumf
// CHECK: math.exp
// CHECK: arith.divf
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[O:.*]] = call @attention.0(%arg0, %arg1, %arg2)
// CHECK-NEXT: return %[[O]]
#q = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#k = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#v = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#r = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%q: tensor<2x64x16xf32>, %k: tensor<2x64x16xf32>, %v: tensor<2x64x16xf32>) -> tensor<2x64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %ef = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [#q, #k, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x64x16xf32>, tensor<2x64x16xf32>) outs(%ef : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %s = tensor.empty() : tensor<2x64xf32>
  %low = arith.constant 0xFF800000 : f32
  %hf = linalg.fill ins(%low : f32) outs(%s : tensor<2x64xf32>) -> tensor<2x64xf32>
  %h = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<2x64x64xf32>) outs(%hf : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.maximumf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %h : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.subf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%d : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.exp %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%s : tensor<2x64xf32>) -> tensor<2x64xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%y : tensor<2x64x64xf32>) outs(%sf : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y, %z : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.divf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %g = tensor.empty() : tensor<2x64x16xf32>
  %gf = linalg.fill ins(%zero : f32) outs(%g : tensor<2x64x16xf32>) -> tensor<2x64x16xf32>
  %u = linalg.generic {indexing_maps = [#q, #v, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %v : tensor<2x64x64xf32>, tensor<2x64x16xf32>) outs(%gf : tensor<2x64x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<2x64x16xf32>
  return %u : tensor<2x64x16xf32>
}

// -----

// Where somebody else reads the scores they lie in memory anyway: nothing is moved.
// CHECK-LABEL: // -----
// CHECK-NOT: func.func private
// CHECK: func.func public @main
// CHECK-COUNT-7: linalg.generic
// CHECK-NOT: call
#q = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#k = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#v = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#r = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%q: tensor<2x64x16xf32>, %k: tensor<2x64x16xf32>, %v: tensor<2x64x16xf32>) -> (tensor<2x64x16xf32>, tensor<2x64x64xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %ef = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [#q, #k, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x64x16xf32>, tensor<2x64x16xf32>) outs(%ef : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %s = tensor.empty() : tensor<2x64xf32>
  %low = arith.constant 0xFF800000 : f32
  %hf = linalg.fill ins(%low : f32) outs(%s : tensor<2x64xf32>) -> tensor<2x64xf32>
  %h = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<2x64x64xf32>) outs(%hf : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.maximumf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %h : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.subf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%d : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.exp %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%s : tensor<2x64xf32>) -> tensor<2x64xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%y : tensor<2x64x64xf32>) outs(%sf : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y, %z : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.divf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %g = tensor.empty() : tensor<2x64x16xf32>
  %gf = linalg.fill ins(%zero : f32) outs(%g : tensor<2x64x16xf32>) -> tensor<2x64x16xf32>
  %u = linalg.generic {indexing_maps = [#q, #v, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %v : tensor<2x64x64xf32>, tensor<2x64x16xf32>) outs(%gf : tensor<2x64x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<2x64x16xf32>
  return %u, %w : tensor<2x64x16xf32>, tensor<2x64x64xf32>
}

// -----

// A kernel for GPUs takes the largest of each row from it; without that, what the CPU's kernel takes is left alone.
// CHECK-LABEL: // -----
// CHECK-NOT: func.func private
// CHECK: func.func public @main
// CHECK-NOT: call
#q = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#k = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
#v = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#r = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#row = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%q: tensor<2x64x16xf32>, %k: tensor<2x64x16xf32>, %v: tensor<2x64x16xf32>) -> tensor<2x64x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x64x64xf32>
  %ef = linalg.fill ins(%zero : f32) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %x = linalg.generic {indexing_maps = [#q, #k, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%q, %k : tensor<2x64x16xf32>, tensor<2x64x16xf32>) outs(%ef : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x : tensor<2x64x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = math.exp %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %s = tensor.empty() : tensor<2x64xf32>
  %sf = linalg.fill ins(%zero : f32) outs(%s : tensor<2x64xf32>) -> tensor<2x64xf32>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "parallel", "reduction"]} ins(%y : tensor<2x64x64xf32>) outs(%sf : tensor<2x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.addf %o, %a : f32
    linalg.yield %p : f32
  } -> tensor<2x64xf32>
  %w = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%y, %z : tensor<2x64x64xf32>, tensor<2x64xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.divf %a, %b : f32
    linalg.yield %p : f32
  } -> tensor<2x64x64xf32>
  %g = tensor.empty() : tensor<2x64x16xf32>
  %gf = linalg.fill ins(%zero : f32) outs(%g : tensor<2x64x16xf32>) -> tensor<2x64x16xf32>
  %u = linalg.generic {indexing_maps = [#q, #v, #r], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%w, %v : tensor<2x64x64xf32>, tensor<2x64x16xf32>) outs(%gf : tensor<2x64x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<2x64x16xf32>
  return %u : tensor<2x64x16xf32>
}
