// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// A small window is one pass over shifted copies; -inf changes nothing in a maximum, so it is left out.
// CHECK-DAG: #[[FIRST:.*]] = affine_map<(d0, d1, d2) -> (d0 * 2, d1 * 2, d2)>
// CHECK-DAG: #[[LAST:.*]] = affine_map<(d0, d1, d2) -> (d0 * 2 + 1, d1 * 2 + 1, d2)>
// CHECK-LABEL: func.func public @main
// CHECK: linalg.generic {indexing_maps = [#[[FIRST]], {{.*}}, #[[LAST]], #{{.*}}], {{.*}} ["parallel", "parallel", "parallel"]}
// CHECK-COUNT-3: arith.maximumf
// CHECK-NOT: arith.maximumf
func.func public @main(%x: tensor<1x8x10x4xf32>) -> (tensor<1x4x5x4xf32>) {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %lowest) <{window_dimensions = array<i64: 1, 2, 2, 1>,
      window_strides = array<i64: 1, 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %1 = stablehlo.maximum %a, %c : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<1x8x10x4xf32>, tensor<f32>) -> tensor<1x4x5x4xf32>
  return %0 : tensor<1x4x5x4xf32>
}

// -----

// With padding in front of the channels it is a kernel, whose loops may be cut at the edges. Its body pads.
// CHECK-LABEL: // -----
// CHECK: func.func private @pool_0(%[[X:.*]]: tensor<360xf32>, %[[START:.*]]: f32) -> tensor<100xf32>
// CHECK-SAME: axes = [{extent = 9 : i64, low = 1 : i64, position_step = 20 : i64, positions = 5 : i64, size = 3 : i64, step = 40 : i64, stride = 2 : i64}, {extent = 10 : i64, low = 0 : i64, position_step = 4 : i64, positions = 5 : i64, size = 2 : i64, step = 4 : i64, stride = 2 : i64}, {extent = 4 : i64, low = 0 : i64, position_step = 1 : i64, positions = 4 : i64, size = 1 : i64, step = 1 : i64, stride = 1 : i64}], computation = "maximum"
// CHECK: tensor.insert_slice
// CHECK: linalg.generic
// CHECK-COUNT-5: arith.maximumf
func.func public @main(%x: tensor<9x10x4xf32>) -> tensor<5x5x4xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %lowest) <{padding = dense<[[1, 1], [0, 0], [0, 0]]> : tensor<3x2xi64>,
      window_dimensions = array<i64: 3, 2, 1>, window_strides = array<i64: 2, 2, 1>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %1 = stablehlo.maximum %a, %c : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<9x10x4xf32>, tensor<f32>) -> tensor<5x5x4xf32>
  return %0 : tensor<5x5x4xf32>
}

// -----

// 37 elements are two times 16, four and one: parts of 4 and of 16 elements come first.
// CHECK-LABEL: // -----
// CHECK: %[[FOUR:.*]] = linalg.generic {{.*}} ins(%arg0, %arg0, %arg0, %arg0, {{.*}} outs(%{{.*}} : tensor<97xi32>)
// CHECK: %[[SIXTEEN:.*]] = linalg.generic {{.*}} ins(%[[FOUR]], %[[FOUR]], %[[FOUR]], %[[FOUR]], {{.*}} : tensor<85xi32>)
// CHECK: linalg.generic {{.*}} ins(%[[SIXTEEN]], %[[SIXTEEN]], %[[FOUR]], %arg0, {{.*}} : tensor<64xi32>)
func.func public @main(%x: tensor<100xi32>) -> tensor<64xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 37>}> ({
  ^bb0(%a: tensor<i32>, %c: tensor<i32>):
    %1 = stablehlo.add %a, %c : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) : (tensor<100xi32>, tensor<i32>) -> tensor<64xi32>
  return %0 : tensor<64xi32>
}

// -----

// A window that reaches from each element to the end is a scan, in blocks of 32 that begin with what came before them.
// CHECK-LABEL: // -----
// CHECK: func.func private @scan_0(%[[X:.*]]: tensor<300xi32>, %[[ZERO:.*]]: i32) -> tensor<300xi32>
// CHECK-SAME: backwards = true, computation = "add", extent = 100 : i64, inner = 1 : i64, outer = 3 : i64
// CHECK-SAME: stablexla.kernel = "scan"
// CHECK: scf.for
// CHECK: scf.for {{.*}} step %c32 iter_args(%{{.*}} = %[[ZERO]], %{{.*}} = %{{.*}}) -> (i32, tensor<300xi32>)
// CHECK: arith.addi %{{.*}}, %[[ZERO]] : i32
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) -> (i32, tensor<300xi32>)
func.func public @main(%x: tensor<3x100xi32>) -> tensor<3x100xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [0, 99]]> : tensor<2x2xi64>,
      window_dimensions = array<i64: 1, 100>}> ({
  ^bb0(%a: tensor<i32>, %c: tensor<i32>):
    %1 = stablehlo.add %a, %c : tensor<i32>
    stablehlo.return %1 : tensor<i32>
  }) : (tensor<3x100xi32>, tensor<i32>) -> tensor<3x100xi32>
  return %0 : tensor<3x100xi32>
}

// -----

// A large window of a computation that is not known is a reduction over it. Nobody reads the array of the window's size.
// CHECK-LABEL: // -----
// CHECK-DAG: #[[READ:.*]] = affine_map<(d0, d1) -> (d0 * 7 + d1)>
// CHECK: %[[SIZE:.*]] = tensor.empty() : tensor<30xi32>
// CHECK: linalg.generic {indexing_maps = [#[[READ]], {{.*}} ["parallel", "reduction"]} ins(%arg0, %[[SIZE]] :
func.func public @main(%x: tensor<100xi32>) -> tensor<11xi32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = "stablehlo.reduce_window"(%x, %one) <{window_dimensions = array<i64: 30>, window_strides = array<i64: 7>}> ({
  ^bb0(%a: tensor<i32>, %c: tensor<i32>):
    %1 = stablehlo.multiply %a, %one : tensor<i32>
    %2 = stablehlo.subtract %1, %c : tensor<i32>
    stablehlo.return %2 : tensor<i32>
  }) : (tensor<100xi32>, tensor<i32>) -> tensor<11xi32>
  return %0 : tensor<11xi32>
}

// -----

// Each window keeps the element that is selected so far and its place, which begins as none.
// CHECK-LABEL: // -----
// CHECK: func.func private @select_and_scatter_0
// CHECK: %[[NONE:.*]] = arith.constant -1 : index
// CHECK: scf.for {{.*}} -> (tensor<8xf32>)
// CHECK: scf.for {{.*}} iter_args(%[[BEST:.*]] = %{{.*}}, %[[PLACE:.*]] = %[[NONE]]) -> (f32, index)
// CHECK: %[[KEEP:.*]] = arith.cmpf oge, %[[BEST]],
// CHECK: arith.select
// CHECK: tensor.insert
func.func public @main(%x: tensor<8xf32>, %s: tensor<4xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %s, %zero) <{window_dimensions = array<i64: 2>,
      window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %1 = stablehlo.compare GE, %a, %c : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %1 = stablehlo.add %a, %c : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<8xf32>, tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
