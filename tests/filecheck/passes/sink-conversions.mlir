// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-sink-conversions)' | FileCheck %s

// A row that is read for each row of an array is converted where it is read, and its own conversion goes.
// CHECK-LABEL: func.func public @main
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>, %[[S:.*]]: tensor<8xbf16>)
// CHECK: linalg.generic {{.*}} ins(%[[X]], %[[S]] : tensor<4x8xf32>, tensor<8xbf16>)
// CHECK: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: bf16, %{{.*}}: f32):
// CHECK-NEXT: %[[W:.*]] = arith.extf %[[B]] : bf16 to f32
// CHECK-NEXT: arith.mulf %[[A]], %[[W]]
// CHECK-NOT: linalg.generic
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>
func.func public @main(%x: tensor<4x8xf32>, %s: tensor<8xbf16>) -> tensor<4x8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %w = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%s : tensor<8xbf16>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %c = arith.extf %a : bf16 to f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %f = tensor.empty() : tensor<4x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%x, %w : tensor<4x8xf32>, tensor<8xf32>) outs(%f : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// An array as large as what is made of it, and what narrows, is left alone.
// CHECK-LABEL: // -----
// CHECK: linalg.generic
// CHECK: arith.extf
// CHECK: linalg.generic
// CHECK: arith.truncf
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8xf32>)
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#one = affine_map<(d0) -> (d0)>
func.func public @main(%x: tensor<4x8xbf16>, %s: tensor<8xf64>) -> tensor<4x8xf32> {
  %f = tensor.empty() : tensor<4x8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xbf16>) outs(%f : tensor<4x8xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %c = arith.extf %a : bf16 to f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  %e = tensor.empty() : tensor<8xf32>
  %w = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%s : tensor<8xf64>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f64, %o: f32):
    %c = arith.truncf %a : f64 to f32
    linalg.yield %c : f32
  } -> tensor<8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%y, %w : tensor<4x8xf32>, tensor<8xf32>) outs(%f : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
