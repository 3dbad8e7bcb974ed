// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-transform{script='%S/../inputs/tile.transform'})" | FileCheck %s

// The schedule tiles each loop nest by 4; what it does not match is left alone.
// CHECK-LABEL: func.func @main
// CHECK: arith.addf
// CHECK: scf.for
// CHECK: tensor.extract_slice %{{.*}} : tensor<16xf32> to tensor<4xf32>
// CHECK: linalg.generic
// CHECK-SAME: tensor<4xf32>
// CHECK: tensor.insert_slice
func.func @main(%x: tensor<16xf32>, %n: f32) -> tensor<16xf32> {
  %m = arith.addf %n, %n : f32
  %0 = tensor.empty() : tensor<16xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<16xf32>) outs(%0 : tensor<16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = arith.mulf %in, %m : f32
    linalg.yield %2 : f32
  } -> tensor<16xf32>
  return %1 : tensor<16xf32>
}
