// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-sink-producers)' | FileCheck %s

// A sum over columns computes what it reads anew, though somebody else reads it as well.
// CHECK-LABEL: func.func public @main
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x8xf32>)
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "parallel"]} ins(%arg0 : tensor<4x8xf32>)
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[O:.*]]: f32):
// CHECK-NEXT: %[[SQUARE:.*]] = arith.mulf %[[A]], %[[A]] : f32
// CHECK-NEXT: arith.addf %[[O]], %[[SQUARE]] : f32
// CHECK: return %[[Y]], %[[SUM]]
#id = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1) -> (d1)>
func.func public @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.mulf %a, %a : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  %r = tensor.empty() : tensor<8xf32>
  %s = linalg.fill ins(%zero : f32) outs(%r : tensor<8xf32>) -> tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #left], iterator_types = ["reduction", "parallel"]} ins(%y : tensor<4x8xf32>) outs(%s : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.addf %o, %a : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  return %y, %0 : tensor<4x8xf32>, tensor<8xf32>
}

// -----

// A sum over rows stays: rows are in registers from one pass to the next.
// CHECK-LABEL: // -----
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>)
// CHECK: linalg.generic {{.*}}"reduction"{{.*}} ins(%[[Y]] : tensor<4x8xf32>)
#id = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1) -> (d0)>
func.func public @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.mulf %a, %a : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  %r = tensor.empty() : tensor<4xf32>
  %s = linalg.fill ins(%zero : f32) outs(%r : tensor<4xf32>) -> tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #left], iterator_types = ["parallel", "reduction"]} ins(%y : tensor<4x8xf32>) outs(%s : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.addf %o, %a : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  return %y, %0 : tensor<4x8xf32>, tensor<4xf32>
}

// -----

// So does a sum of what takes time to make.
// CHECK-LABEL: // -----
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xf32>)
// CHECK: linalg.generic {{.*}}"reduction"{{.*}} ins(%[[Y]] : tensor<4x8xf32>)
#id = affine_map<(d0, d1) -> (d0, d1)>
#left = affine_map<(d0, d1) -> (d1)>
func.func public @main(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = math.exp %a : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  %r = tensor.empty() : tensor<8xf32>
  %s = linalg.fill ins(%zero : f32) outs(%r : tensor<8xf32>) -> tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #left], iterator_types = ["reduction", "parallel"]} ins(%y : tensor<4x8xf32>) outs(%s : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.addf %o, %a : f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  return %y, %0 : tensor<4x8xf32>, tensor<8xf32>
}
