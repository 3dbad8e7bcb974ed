// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// Elements of less than a byte, and bf16, are held by integers; a NaN keeps its bits; complex numbers are put together.
// CHECK-DAG: arith.constant dense<0x7FC00001> : tensor<f32>
// CHECK-DAG: arith.constant dense<[1, 0]> : tensor<2xi8>
// CHECK-DAG: arith.constant dense<[15, 2, 3]> : tensor<3xi8>
// CHECK-DAG: %[[BITS:.*]] = arith.constant dense<[16256, 16384, 16448]> : tensor<3xi16>
// CHECK-DAG: tensor.bitcast %[[BITS]] : tensor<3xi16> to tensor<3xbf16>
// CHECK-DAG: %[[RE:.*]] = arith.constant dense<[1.000000e+00, 3.000000e+00]> : tensor<2xf32>
// CHECK-DAG: %[[IM:.*]] = arith.constant dense<[2.000000e+00, 4.000000e+00]> : tensor<2xf32>
// CHECK: linalg.generic {{.*}} ins(%[[RE]], %[[IM]] :
// CHECK: complex.create
func.func public @main() -> (
    tensor<3xbf16>, tensor<2xi1>, tensor<3xi4>, tensor<2xcomplex<f32>>, tensor<f32>) {
  %0 = stablehlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xbf16>
  %1 = stablehlo.constant dense<[true, false]> : tensor<2xi1>
  %2 = stablehlo.constant dense<[-1, 2, 3]> : tensor<3xi4>
  %3 = stablehlo.constant dense<[(1.0, 2.0), (3.0, 4.0)]> : tensor<2xcomplex<f32>>
  %4 = stablehlo.constant dense<0x7FC00001> : tensor<f32>
  return %0, %1, %2, %3, %4 : tensor<3xbf16>, tensor<2xi1>, tensor<3xi4>, tensor<2xcomplex<f32>>, tensor<f32>
}

// -----

// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} ["parallel", "parallel", "parallel"]
// CHECK: %[[AT:.*]] = linalg.index 1 : index
// CHECK: arith.index_cast %[[AT]] : index to i32
func.func public @main() -> tensor<2x3x4xi32> {
  %0 = stablehlo.iota dim = 1 : tensor<2x3x4xi32>
  return %0 : tensor<2x3x4xi32>
}

// -----

// A reshape moves nothing; one of a scalar is that scalar everywhere.
// CHECK-LABEL: // -----
// CHECK-NOT: linalg
// CHECK-DAG: %[[S:.*]] = tensor.extract %arg1[] : tensor<f32>
// CHECK-DAG: %[[FLAT:.*]] = tensor.collapse_shape %arg0 {{.*}} into tensor<24xf32>
// CHECK-DAG: tensor.expand_shape %[[FLAT]] {{.*}} into tensor<2x12xf32>
// CHECK-DAG: tensor.splat %[[S]] : tensor<1x1xf32>
func.func public @main(%x: tensor<4x6xf32>, %s: tensor<f32>) -> (tensor<2x12xf32>, tensor<1x1xf32>) {
  %0 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<2x12xf32>
  %1 = stablehlo.reshape %s : (tensor<f32>) -> tensor<1x1xf32>
  return %0, %1 : tensor<2x12xf32>, tensor<1x1xf32>
}

// -----

// CHECK-LABEL: // -----
// CHECK-DAG: #[[TURN:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[BACK:.*]] = affine_map<(d0, d1) -> (d0, -d1 + 3)>
// CHECK: linalg.generic {indexing_maps = [#[[TURN]], {{.*}} attrs = {stablexla.transpose}
// CHECK: linalg.generic {indexing_maps = [#[[BACK]],
func.func public @main(%x: tensor<4x6xf32>) -> tensor<6x4xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %1 = stablehlo.reverse %0, dims = [1] : tensor<6x4xf32>
  return %1 : tensor<6x4xf32>
}

// -----

// A slice of nothing reads nothing, even where it would begin behind the last element.
// CHECK-LABEL: // -----
// CHECK: #[[CUT:.*]] = affine_map<(d0, d1) -> (d0 * 2 + 1, d1 + 2)>
// CHECK: linalg.generic {indexing_maps = [#[[CUT]],
// CHECK-NOT: tensor.extract_slice {{.*}} tensor<0x6xf32>
// CHECK: tensor.empty() : tensor<0x6xf32>
func.func public @main(%x: tensor<4x6xf32>) -> (tensor<2x2xf32>, tensor<0x6xf32>) {
  %0 = stablehlo.slice %x [1:4:2, 2:4] : (tensor<4x6xf32>) -> tensor<2x2xf32>
  %1 = stablehlo.slice %x [4:4, 0:6] : (tensor<4x6xf32>) -> tensor<0x6xf32>
  return %0, %1 : tensor<2x2xf32>, tensor<0x6xf32>
}

// -----

// Interior padding is a stride of the insertion; negative edges cut the operand.
// CHECK-LABEL: // -----
// CHECK: %[[FILL:.*]] = tensor.splat %{{.*}} : tensor<9xf32>
// CHECK: tensor.insert_slice %arg0 into %[[FILL]][1] [4] [2]
// CHECK: tensor.extract_slice %arg0[1] [2] [1]
func.func public @main(%x: tensor<4xf32>, %p: tensor<f32>) -> (tensor<9xf32>, tensor<2xf32>) {
  %0 = stablehlo.pad %x, %p, low = [1], high = [1], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<9xf32>
  %1 = stablehlo.pad %x, %p, low = [-1], high = [-1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<2xf32>
  return %0, %1 : tensor<9xf32>, tensor<2xf32>
}

// -----

// CHECK-LABEL: // -----
// CHECK: %[[NEW:.*]] = tensor.empty() : tensor<6xf32>
// CHECK-NEXT: %[[HEAD:.*]] = tensor.insert_slice %arg0 into %[[NEW]][0] [4] [1]
// CHECK-NEXT: tensor.insert_slice %arg1 into %[[HEAD]][4] [2] [1]
// CHECK-NEXT: return
func.func public @main(%x: tensor<4xf32>, %y: tensor<2xf32>, %z: tensor<0xf32>) -> tensor<6xf32> {
  %0 = stablehlo.concatenate %x, %z, %y, dim = 0
    : (tensor<4xf32>, tensor<0xf32>, tensor<2xf32>) -> tensor<6xf32>
  return %0 : tensor<6xf32>
}

// -----

// Starts are clamped, signed ones from both sides; one that can only be 0 is not looked at.
// CHECK-LABEL: // -----
// CHECK: %[[I:.*]] = arith.maxsi %{{.*}}, %c0_i32
// CHECK: %[[HELD:.*]] = arith.minsi %[[I]], %c6_i32
// CHECK: arith.index_cast %[[HELD]] : i32 to index
// CHECK: tensor.extract_slice %arg0[%{{.*}}, 0] [2, 4] [1, 1]
// CHECK: %[[J:.*]] = arith.minui %{{.*}}, %c6_i8
// CHECK: arith.index_castui %[[J]] : i8 to index
// CHECK: tensor.insert_slice %arg1 into %arg0[%{{.*}}, 0] [2, 4] [1, 1]
func.func public @main(
    %x: tensor<8x4xf32>, %u: tensor<2x4xf32>, %i: tensor<i32>, %j: tensor<ui8>) -> (tensor<2x4xf32>, tensor<8x4xf32>) {
  %c = stablehlo.constant dense<0> : tensor<i32>
  %d = stablehlo.constant dense<0> : tensor<ui8>
  %0 = stablehlo.dynamic_slice %x, %i, %c, sizes = [2, 4]
    : (tensor<8x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
  %1 = stablehlo.dynamic_update_slice %x, %u, %j, %d
    : (tensor<8x4xf32>, tensor<2x4xf32>, tensor<ui8>, tensor<ui8>) -> tensor<8x4xf32>
  return %0, %1 : tensor<2x4xf32>, tensor<8x4xf32>
}
