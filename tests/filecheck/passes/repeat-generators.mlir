// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-repeat-generators)' | FileCheck %s

// A generator, which reads no array, is cloned for each user but the first.
// CHECK-LABEL: func.func public @main(
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
