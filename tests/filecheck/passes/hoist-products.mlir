// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-hoist-products)' | FileCheck %s

// The products of all slices are one before the loop; a round takes its rows of it.
// CHECK-LABEL: func.func public @main
// CHECK: %[[ROWS:.*]] = tensor.collapse_shape %arg0 {{\[\[}}0, 1], [2]] : tensor<10x4x8xf32> into tensor<40x8xf32>
// CHECK: %[[ALL:.*]] = linalg.generic {{.*}} ins(%[[ROWS]], %arg1 : tensor<40x8xf32>, tensor<8x8xf32>) outs(%{{.*}} : tensor<40x8xf32>)
// CHECK: %[[PARTS:.*]] = tensor.expand_shape %[[ALL]] {{.*}} : tensor<40x8xf32> into tensor<10x4x8xf32>
// CHECK: scf.while
// CHECK: ^bb0(%[[I:.*]]: index,
// CHECK-NOT: linalg.generic
// CHECK: %[[CUT:.*]] = tensor.extract_slice %[[PARTS]][%[[I]], 0, 0] [1, 4, 8]
// CHECK: %[[PRODUCT:.*]] = tensor.collapse_shape %[[CUT]]
// CHECK: scf.yield %{{.*}}, %[[PRODUCT]]
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%xs: tensor<10x4x8xf32>, %w: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rounds = arith.constant 10 : index
  %0:2 = scf.while (%i = %first, %s = %h) : (index, tensor<4x8xf32>) -> (index, tensor<4x8xf32>) {
    %go = arith.cmpi slt, %i, %rounds : index
    scf.condition(%go) %i, %s : index, tensor<4x8xf32>
  } do {
  ^bb0(%i: index, %s: tensor<4x8xf32>):
    %cut = tensor.extract_slice %xs[%i, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<10x4x8xf32> to tensor<1x4x8xf32>
    %slice = tensor.collapse_shape %cut [[0, 1], [2]] : tensor<1x4x8xf32> into tensor<4x8xf32>
    %e = tensor.empty() : tensor<4x8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    %p = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%slice, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%f : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %m = arith.mulf %a, %b : f32
      %q = arith.addf %o, %m : f32
      linalg.yield %q : f32
    } -> tensor<4x8xf32>
    %next = arith.addi %i, %one : index
    scf.yield %next, %p : index, tensor<4x8xf32>
  }
  return %0#1 : tensor<4x8xf32>
}

// -----

// A product of what the loop itself makes stays in it.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NOT: linalg.generic
// CHECK: scf.while
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg1 : tensor<4x8xf32>, tensor<8x8xf32>)
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%xs: tensor<10x4x8xf32>, %w: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rounds = arith.constant 10 : index
  %0:2 = scf.while (%i = %first, %s = %h) : (index, tensor<4x8xf32>) -> (index, tensor<4x8xf32>) {
    %go = arith.cmpi slt, %i, %rounds : index
    scf.condition(%go) %i, %s : index, tensor<4x8xf32>
  } do {
  ^bb0(%i: index, %s: tensor<4x8xf32>):
    %cut = tensor.extract_slice %xs[%i, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<10x4x8xf32> to tensor<1x4x8xf32>
    %slice = tensor.collapse_shape %cut [[0, 1], [2]] : tensor<1x4x8xf32> into tensor<4x8xf32>
    %e = tensor.empty() : tensor<4x8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    %p = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%s, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%f : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %m = arith.mulf %a, %b : f32
      %q = arith.addf %o, %m : f32
      linalg.yield %q : f32
    } -> tensor<4x8xf32>
    %next = arith.addi %i, %one : index
    scf.yield %next, %p : index, tensor<4x8xf32>
  }
  return %0#1 : tensor<4x8xf32>
}

// -----

// So does one that a loop of fewer rounds than there are slices would not need for all of them.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NOT: linalg.generic
// CHECK: scf.while
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %arg1 : tensor<4x8xf32>, tensor<8x8xf32>)
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%xs: tensor<10x4x8xf32>, %w: tensor<8x8xf32>, %h: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rounds = arith.constant 9 : index
  %0:2 = scf.while (%i = %first, %s = %h) : (index, tensor<4x8xf32>) -> (index, tensor<4x8xf32>) {
    %go = arith.cmpi slt, %i, %rounds : index
    scf.condition(%go) %i, %s : index, tensor<4x8xf32>
  } do {
  ^bb0(%i: index, %s: tensor<4x8xf32>):
    %cut = tensor.extract_slice %xs[%i, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<10x4x8xf32> to tensor<1x4x8xf32>
    %slice = tensor.collapse_shape %cut [[0, 1], [2]] : tensor<1x4x8xf32> into tensor<4x8xf32>
    %e = tensor.empty() : tensor<4x8xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    %p = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%slice, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%f : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %m = arith.mulf %a, %b : f32
      %q = arith.addf %o, %m : f32
      linalg.yield %q : f32
    } -> tensor<4x8xf32>
    %next = arith.addi %i, %one : index
    scf.yield %next, %p : index, tensor<4x8xf32>
  }
  return %0#1 : tensor<4x8xf32>
}
