// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-split-complex-products)' | FileCheck %s

// The left factor and the result are read as real; the right one is written out as 2x2 matrices.
// CHECK-DAG: #[[X:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3)>
// CHECK-DAG: #[[Y:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d2, d3, d1, d4)>
// CHECK-DAG: #[[R:.*]] = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4)>
// CHECK-LABEL: func.func public @main
// CHECK: %[[PAIRS:.*]] = linalg.generic
// CHECK-SAME: ins(%arg1 : tensor<32x48xcomplex<f32>>) outs(%{{.*}} : tensor<32x2x48xcomplex<f32>>)
// CHECK: %[[SEEN:.*]] = builtin.unrealized_conversion_cast %arg0 : tensor<64x32xcomplex<f32>> to tensor<64x32x2xf32>
// CHECK: %[[MATRICES:.*]] = builtin.unrealized_conversion_cast %[[PAIRS]] : tensor<32x2x48xcomplex<f32>> to tensor<32x2x48x2xf32>
// CHECK: %[[PRODUCT:.*]] = linalg.generic {indexing_maps = [#[[X]], #[[Y]], #[[R]]], iterator_types = ["parallel", "parallel", "reduction", "reduction", "parallel"]}
// CHECK-SAME: ins(%[[SEEN]], %[[MATRICES]] : tensor<64x32x2xf32>, tensor<32x2x48x2xf32>)
// CHECK: arith.mulf
// CHECK: %[[RESULT:.*]] = builtin.unrealized_conversion_cast %[[PRODUCT]] : tensor<64x48x2xf32> to tensor<64x48xcomplex<f32>>
// CHECK: return %[[RESULT]]
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#y = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<64x32xcomplex<f32>>, %y: tensor<32x48xcomplex<f32>>) -> tensor<64x48xcomplex<f32>> {
  %zero = arith.constant 0.0 : f32
  %none = complex.create %zero, %zero : complex<f32>
  %e = tensor.empty() : tensor<64x48xcomplex<f32>>
  %s = linalg.fill ins(%none : complex<f32>) outs(%e : tensor<64x48xcomplex<f32>>) -> tensor<64x48xcomplex<f32>>
  %0 = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %y : tensor<64x32xcomplex<f32>>, tensor<32x48xcomplex<f32>>) outs(%s : tensor<64x48xcomplex<f32>>) {
  ^bb0(%a: complex<f32>, %b: complex<f32>, %o: complex<f32>):
    %1 = complex.re %a : complex<f32>
    %2 = complex.im %a : complex<f32>
    %3 = complex.re %b : complex<f32>
    %4 = complex.im %b : complex<f32>
    %5 = arith.mulf %1, %3 : f32
    %6 = arith.mulf %2, %4 : f32
    %7 = arith.subf %5, %6 : f32
    %8 = arith.mulf %1, %4 : f32
    %9 = arith.mulf %2, %3 : f32
    %10 = arith.addf %8, %9 : f32
    %11 = complex.re %o : complex<f32>
    %12 = complex.im %o : complex<f32>
    %13 = arith.addf %11, %7 : f32
    %14 = arith.addf %12, %10 : f32
    %15 = complex.create %13, %14 : complex<f32>
    linalg.yield %15 : complex<f32>
  } -> tensor<64x48xcomplex<f32>>
  return %0 : tensor<64x48xcomplex<f32>>
}

// -----

// A row by a large matrix: the matrix is read where it lies, and the row is written out by parts.
// CHECK-LABEL: func.func public @main
// CHECK: linalg.generic
// CHECK-SAME: ins(%arg0 : tensor<300xcomplex<f32>>) outs(%{{.*}} : tensor<2x300xf32>)
// CHECK: %[[SEEN:.*]] = builtin.unrealized_conversion_cast %arg1 : tensor<300x512xcomplex<f32>> to tensor<300x512x2xf32>
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}}, %[[SEEN]] : tensor<2x300xf32>, tensor<300x512x2xf32>) outs(%{{.*}} : tensor<2x512x2xf32>)
// CHECK: builtin.unrealized_conversion_cast %{{.*}} : tensor<2x512x2xf32> to tensor<2x512xcomplex<f32>>
// CHECK: arith.subf
// CHECK: return %{{.*}} : tensor<512xcomplex<f32>>
#x = affine_map<(d0, d1) -> (d1)>
#y = affine_map<(d0, d1) -> (d1, d0)>
#r = affine_map<(d0, d1) -> (d0)>
func.func public @main(%x: tensor<300xcomplex<f32>>, %y: tensor<300x512xcomplex<f32>>) -> tensor<512xcomplex<f32>> {
  %zero = arith.constant 0.0 : f32
  %none = complex.create %zero, %zero : complex<f32>
  %e = tensor.empty() : tensor<512xcomplex<f32>>
  %s = linalg.fill ins(%none : complex<f32>) outs(%e : tensor<512xcomplex<f32>>) -> tensor<512xcomplex<f32>>
  %0 = linalg.generic {indexing_maps = [#x, #y, #r], iterator_types = ["parallel", "reduction"]} ins(%x, %y : tensor<300xcomplex<f32>>, tensor<300x512xcomplex<f32>>) outs(%s : tensor<512xcomplex<f32>>) {
  ^bb0(%a: complex<f32>, %b: complex<f32>, %o: complex<f32>):
    %1 = complex.re %a : complex<f32>
    %2 = complex.im %a : complex<f32>
    %3 = complex.re %b : complex<f32>
    %4 = complex.im %b : complex<f32>
    %5 = arith.mulf %1, %3 : f32
    %6 = arith.mulf %2, %4 : f32
    %7 = arith.subf %5, %6 : f32
    %8 = arith.mulf %1, %4 : f32
    %9 = arith.mulf %2, %3 : f32
    %10 = arith.addf %8, %9 : f32
    %11 = complex.re %o : complex<f32>
    %12 = complex.im %o : complex<f32>
    %13 = arith.addf %11, %7 : f32
    %14 = arith.addf %12, %10 : f32
    %15 = complex.create %13, %14 : complex<f32>
    linalg.yield %15 : complex<f32>
  } -> tensor<512xcomplex<f32>>
  return %0 : tensor<512xcomplex<f32>>
}
