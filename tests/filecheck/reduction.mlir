// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// The reduced dimensions are reduction loops; the initial value fills what is summed into.
// CHECK-DAG: #[[ALL:.*]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-DAG: #[[KEPT:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK: %[[INIT:.*]] = tensor.extract %arg1[] : tensor<f32>
// CHECK: %[[START:.*]] = linalg.fill ins(%[[INIT]] : f32) {{.*}} -> tensor<4x6xf32>
// CHECK: linalg.generic {indexing_maps = [#[[ALL]], #[[KEPT]]], iterator_types = ["parallel", "reduction", "parallel"]}
// CHECK-SAME: outs(%[[START]] :
// CHECK-NEXT: ^bb0(%[[X:.*]]: f32, %[[TOTAL:.*]]: f32):
// CHECK-NEXT: arith.addf %[[TOTAL]], %[[X]]
// CHECK: linalg.generic {{.*}} ["reduction", "reduction", "reduction"]
// CHECK: arith.maximumf
// CHECK: tensor.extract %{{.*}}[] : tensor<f32>
func.func public @main(%x: tensor<4x5x6xf32>, %i: tensor<f32>) -> (tensor<4x6xf32>, tensor<f32>) {
  %0 = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [1]
    : (tensor<4x5x6xf32>, tensor<f32>) -> tensor<4x6xf32>
  %1 = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across dimensions = [0, 1, 2]
    : (tensor<4x5x6xf32>, tensor<f32>) -> tensor<f32>
  return %0, %1 : tensor<4x6xf32>, tensor<f32>
}

// -----

// Several arrays are reduced by one loop nest.
// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x5xf32>, tensor<4x5xi32>)
// CHECK-SAME: : tensor<4xf32>, tensor<4xi32>)
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: %[[LEAST:.*]] = arith.minsi
// CHECK: linalg.yield %[[SUM]], %[[LEAST]] : f32, i32
func.func public @main(
    %x: tensor<4x5xf32>, %y: tensor<4x5xi32>, %a: tensor<f32>, %b: tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>) {
  %0:2 = stablehlo.reduce(%x init: %a), (%y init: %b) across dimensions = [1]
    : (tensor<4x5xf32>, tensor<4x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
    reducer(%p: tensor<f32>, %q: tensor<f32>) (%r: tensor<i32>, %s: tensor<i32>) {
    %1 = stablehlo.add %p, %q : tensor<f32>
    %2 = stablehlo.minimum %r, %s : tensor<i32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<i32>
  }
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xi32>
}

// -----

// A repeated scalar still tells the loops their extents, so it is kept as an array.
// CHECK-LABEL: // -----
// CHECK: %[[MANY:.*]] = tensor.splat %{{.*}} : tensor<4x7xf32>
// CHECK: linalg.generic {{.*}} ins(%[[MANY]] :
func.func public @main(%s: tensor<f32>) -> tensor<4xf32> {
  %b = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<4x7xf32>
  %0 = stablehlo.reduce(%b init: %s) applies stablehlo.add across dimensions = [1]
    : (tensor<4x7xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// pred is a byte on the way in, between the steps and on the way out.
// CHECK-LABEL: // -----
// CHECK: ^bb0(%[[X:.*]]: i8, %[[TOTAL:.*]]: i8):
// CHECK-DAG: arith.cmpi ne, %[[X]],
// CHECK-DAG: arith.cmpi ne, %[[TOTAL]],
// CHECK: %[[BIT:.*]] = arith.ori {{.*}} : i1
// CHECK: arith.extui %[[BIT]] : i1 to i8
func.func public @main(%x: tensor<4x5xi1>, %i: tensor<i1>) -> tensor<4xi1> {
  %0 = stablehlo.reduce(%x init: %i) applies stablehlo.or across dimensions = [1]
    : (tensor<4x5xi1>, tensor<i1>) -> tensor<4xi1>
  return %0 : tensor<4xi1>
}

// -----

// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} ["parallel"]
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: arith.mulf %[[A]], %[[B]]
func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.map"(%x, %y) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.multiply %a, %b : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
