// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-prepare-groups)' | FileCheck %s

// A splat, and a constant of equal elements, is a loop that stores a scalar; other constants stay, and what nobody reads
// goes.
// CHECK-LABEL: func.func public @main(
// CHECK-SAME: %[[N:.*]]: f32)
// CHECK-NOT: tensor.splat
// CHECK: linalg.generic {{.*}} ins(%[[N]] : f32) outs(%{{.*}} : tensor<4xf32>)
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: linalg.generic {{.*}} ins(%[[TWO]] : f32) outs(%{{.*}} : tensor<4xf32>)
// CHECK: arith.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK-NOT: math.exp
// CHECK: return
func.func public @main(%n: f32) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>) {
  %0 = tensor.splat %n : tensor<4xf32>
  %1 = arith.constant dense<2.0> : tensor<4xf32>
  %2 = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %3 = math.exp %n : f32
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<2xf32>
}

// -----

// What reads no array is made anew for each reader.
// CHECK-LABEL: // -----
// CHECK: linalg.index 0
// CHECK: linalg.generic
// CHECK: arith.addi
// CHECK: linalg.index 0
// CHECK: linalg.generic
// CHECK: arith.muli
#id = affine_map<(d0) -> (d0)>
func.func public @main(%x: tensor<4xi32>) -> (tensor<4xi32>, tensor<4xi32>) {
  %e = tensor.empty() : tensor<4xi32>
  %i = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel"]} outs(%e : tensor<4xi32>) {
  ^bb0(%b: i32):
    %c = linalg.index 0 : index
    %d = arith.index_cast %c : index to i32
    linalg.yield %d : i32
  } -> tensor<4xi32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %i : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4xi32>) {
  ^bb0(%a: i32, %b: i32, %o: i32):
    %c = arith.addi %a, %b : i32
    linalg.yield %c : i32
  } -> tensor<4xi32>
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %i : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4xi32>) {
  ^bb0(%a: i32, %b: i32, %o: i32):
    %c = arith.muli %a, %b : i32
    linalg.yield %c : i32
  } -> tensor<4xi32>
  return %0, %1 : tensor<4xi32>, tensor<4xi32>
}
