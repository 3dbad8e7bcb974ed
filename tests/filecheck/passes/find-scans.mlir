// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-find-scans)' | FileCheck %s

// The tree of a running product of 16 numbers is one operation, and the combination of two of them a function of
// scalars; the tree is kept as what the operation stands for.
// CHECK-LABEL: func.func public @main
// CHECK: %[[SCAN:.*]] = stablehlo.composite "stablexla.associative_scan" %arg0
// CHECK-SAME: {arrays = 1 : i64, backwards = false, combination = @[[COMBINATION:.*]], dimension = 0 : i64, returned = array<i64: 0>}
// CHECK-SAME: decomposition = @[[TREE:.*]]} :
// CHECK-NEXT: return %[[SCAN]]
// CHECK: func.func private @[[COMBINATION]](%[[A:.*]]: tensor<f32>, %[[B:.*]]: tensor<f32>) -> tensor<f32>
// CHECK-NEXT: stablehlo.multiply %[[A]], %[[B]] : tensor<f32>
// CHECK: func.func private @[[TREE]](%{{.*}}: tensor<16xf32>) -> tensor<16xf32>
// CHECK: stablehlo.pad
func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.slice %x [0:15:2] : (tensor<16xf32>) -> tensor<8xf32>
  %2 = stablehlo.slice %x [1:16:2] : (tensor<16xf32>) -> tensor<8xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<8xf32>
  %4 = stablehlo.slice %3 [0:7:2] : (tensor<8xf32>) -> tensor<4xf32>
  %5 = stablehlo.slice %3 [1:8:2] : (tensor<8xf32>) -> tensor<4xf32>
  %6 = stablehlo.multiply %4, %5 : tensor<4xf32>
  %7 = stablehlo.slice %6 [0:3:2] : (tensor<4xf32>) -> tensor<2xf32>
  %8 = stablehlo.slice %6 [1:4:2] : (tensor<4xf32>) -> tensor<2xf32>
  %9 = stablehlo.multiply %7, %8 : tensor<2xf32>
  %10 = stablehlo.slice %9 [0:1:2] : (tensor<2xf32>) -> tensor<1xf32>
  %11 = stablehlo.slice %9 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
  %12 = stablehlo.multiply %10, %11 : tensor<1xf32>
  %13 = stablehlo.slice %12 [0:0] : (tensor<1xf32>) -> tensor<0xf32>
  %14 = stablehlo.slice %9 [2:2:2] : (tensor<2xf32>) -> tensor<0xf32>
  %15 = stablehlo.multiply %13, %14 : tensor<0xf32>
  %16 = stablehlo.slice %9 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %17 = stablehlo.concatenate %16, %15, dim = 0 : (tensor<1xf32>, tensor<0xf32>) -> tensor<1xf32>
  %18 = stablehlo.pad %17, %zero, low = [0], high = [1], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %19 = stablehlo.pad %12, %zero, low = [1], high = [0], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %20 = stablehlo.add %18, %19 : tensor<2xf32>
  %21 = stablehlo.slice %20 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %22 = stablehlo.slice %6 [2:4:2] : (tensor<4xf32>) -> tensor<1xf32>
  %23 = stablehlo.multiply %21, %22 : tensor<1xf32>
  %24 = stablehlo.slice %6 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
  %25 = stablehlo.concatenate %24, %23, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %26 = stablehlo.pad %25, %zero, low = [0], high = [1], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  %27 = stablehlo.pad %20, %zero, low = [1], high = [0], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  %28 = stablehlo.add %26, %27 : tensor<4xf32>
  %29 = stablehlo.slice %28 [0:3] : (tensor<4xf32>) -> tensor<3xf32>
  %30 = stablehlo.slice %3 [2:8:2] : (tensor<8xf32>) -> tensor<3xf32>
  %31 = stablehlo.multiply %29, %30 : tensor<3xf32>
  %32 = stablehlo.slice %3 [0:1] : (tensor<8xf32>) -> tensor<1xf32>
  %33 = stablehlo.concatenate %32, %31, dim = 0 : (tensor<1xf32>, tensor<3xf32>) -> tensor<4xf32>
  %34 = stablehlo.pad %33, %zero, low = [0], high = [1], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %35 = stablehlo.pad %28, %zero, low = [1], high = [0], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %36 = stablehlo.add %34, %35 : tensor<8xf32>
  %37 = stablehlo.slice %36 [0:7] : (tensor<8xf32>) -> tensor<7xf32>
  %38 = stablehlo.slice %x [2:16:2] : (tensor<16xf32>) -> tensor<7xf32>
  %39 = stablehlo.multiply %37, %38 : tensor<7xf32>
  %40 = stablehlo.slice %x [0:1] : (tensor<16xf32>) -> tensor<1xf32>
  %41 = stablehlo.concatenate %40, %39, dim = 0 : (tensor<1xf32>, tensor<7xf32>) -> tensor<8xf32>
  %42 = stablehlo.pad %41, %zero, low = [0], high = [1], interior = [1] : (tensor<8xf32>, tensor<f32>) -> tensor<16xf32>
  %43 = stablehlo.pad %36, %zero, low = [1], high = [0], interior = [1] : (tensor<8xf32>, tensor<f32>) -> tensor<16xf32>
  %44 = stablehlo.add %42, %43 : tensor<16xf32>
  return %44 : tensor<16xf32>
}

// -----

// Levels that do not all combine in the same way are no scan.
// CHECK-LABEL: // -----
// CHECK-NOT: composite
// CHECK-COUNT-8: stablehlo.pad
// CHECK-NOT: func.func private
func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.slice %x [0:15:2] : (tensor<16xf32>) -> tensor<8xf32>
  %2 = stablehlo.slice %x [1:16:2] : (tensor<16xf32>) -> tensor<8xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<8xf32>
  %4 = stablehlo.slice %3 [0:7:2] : (tensor<8xf32>) -> tensor<4xf32>
  %5 = stablehlo.slice %3 [1:8:2] : (tensor<8xf32>) -> tensor<4xf32>
  %6 = stablehlo.maximum %4, %5 : tensor<4xf32>
  %7 = stablehlo.slice %6 [0:3:2] : (tensor<4xf32>) -> tensor<2xf32>
  %8 = stablehlo.slice %6 [1:4:2] : (tensor<4xf32>) -> tensor<2xf32>
  %9 = stablehlo.multiply %7, %8 : tensor<2xf32>
  %10 = stablehlo.slice %9 [0:1:2] : (tensor<2xf32>) -> tensor<1xf32>
  %11 = stablehlo.slice %9 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
  %12 = stablehlo.multiply %10, %11 : tensor<1xf32>
  %13 = stablehlo.slice %12 [0:0] : (tensor<1xf32>) -> tensor<0xf32>
  %14 = stablehlo.slice %9 [2:2:2] : (tensor<2xf32>) -> tensor<0xf32>
  %15 = stablehlo.multiply %13, %14 : tensor<0xf32>
  %16 = stablehlo.slice %9 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %17 = stablehlo.concatenate %16, %15, dim = 0 : (tensor<1xf32>, tensor<0xf32>) -> tensor<1xf32>
  %18 = stablehlo.pad %17, %zero, low = [0], high = [1], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %19 = stablehlo.pad %12, %zero, low = [1], high = [0], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %20 = stablehlo.add %18, %19 : tensor<2xf32>
  %21 = stablehlo.slice %20 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %22 = stablehlo.slice %6 [2:4:2] : (tensor<4xf32>) -> tensor<1xf32>
  %23 = stablehlo.multiply %21, %22 : tensor<1xf32>
  %24 = stablehlo.slice %6 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
  %25 = stablehlo.concatenate %24, %23, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %26 = stablehlo.pad %25, %zero, low = [0], high = [1], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  %27 = stablehlo.pad %20, %zero, low = [1], high = [0], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  %28 = stablehlo.add %26, %27 : tensor<4xf32>
  %29 = stablehlo.slice %28 [0:3] : (tensor<4xf32>) -> tensor<3xf32>
  %30 = stablehlo.slice %3 [2:8:2] : (tensor<8xf32>) -> tensor<3xf32>
  %31 = stablehlo.maximum %29, %30 : tensor<3xf32>
  %32 = stablehlo.slice %3 [0:1] : (tensor<8xf32>) -> tensor<1xf32>
  %33 = stablehlo.concatenate %32, %31, dim = 0 : (tensor<1xf32>, tensor<3xf32>) -> tensor<4xf32>
  %34 = stablehlo.pad %33, %zero, low = [0], high = [1], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %35 = stablehlo.pad %28, %zero, low = [1], high = [0], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %36 = stablehlo.add %34, %35 : tensor<8xf32>
  %37 = stablehlo.slice %36 [0:7] : (tensor<8xf32>) -> tensor<7xf32>
  %38 = stablehlo.slice %x [2:16:2] : (tensor<16xf32>) -> tensor<7xf32>
  %39 = stablehlo.multiply %37, %38 : tensor<7xf32>
  %40 = stablehlo.slice %x [0:1] : (tensor<16xf32>) -> tensor<1xf32>
  %41 = stablehlo.concatenate %40, %39, dim = 0 : (tensor<1xf32>, tensor<7xf32>) -> tensor<8xf32>
  %42 = stablehlo.pad %41, %zero, low = [0], high = [1], interior = [1] : (tensor<8xf32>, tensor<f32>) -> tensor<16xf32>
  %43 = stablehlo.pad %36, %zero, low = [1], high = [0], interior = [1] : (tensor<8xf32>, tensor<f32>) -> tensor<16xf32>
  %44 = stablehlo.add %42, %43 : tensor<16xf32>
  return %44 : tensor<16xf32>
}

// -----

// Few elements are left in few levels.
// CHECK-LABEL: // -----
// CHECK-NOT: composite
// CHECK-COUNT-6: stablehlo.pad
// CHECK-NOT: func.func private
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %1 = stablehlo.slice %x [0:7:2] : (tensor<8xf32>) -> tensor<4xf32>
  %2 = stablehlo.slice %x [1:8:2] : (tensor<8xf32>) -> tensor<4xf32>
  %3 = stablehlo.multiply %1, %2 : tensor<4xf32>
  %4 = stablehlo.slice %3 [0:3:2] : (tensor<4xf32>) -> tensor<2xf32>
  %5 = stablehlo.slice %3 [1:4:2] : (tensor<4xf32>) -> tensor<2xf32>
  %6 = stablehlo.multiply %4, %5 : tensor<2xf32>
  %7 = stablehlo.slice %6 [0:1:2] : (tensor<2xf32>) -> tensor<1xf32>
  %8 = stablehlo.slice %6 [1:2:2] : (tensor<2xf32>) -> tensor<1xf32>
  %9 = stablehlo.multiply %7, %8 : tensor<1xf32>
  %10 = stablehlo.slice %9 [0:0] : (tensor<1xf32>) -> tensor<0xf32>
  %11 = stablehlo.slice %6 [2:2:2] : (tensor<2xf32>) -> tensor<0xf32>
  %12 = stablehlo.multiply %10, %11 : tensor<0xf32>
  %13 = stablehlo.slice %6 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %14 = stablehlo.concatenate %13, %12, dim = 0 : (tensor<1xf32>, tensor<0xf32>) -> tensor<1xf32>
  %15 = stablehlo.pad %14, %zero, low = [0], high = [1], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %16 = stablehlo.pad %9, %zero, low = [1], high = [0], interior = [1] : (tensor<1xf32>, tensor<f32>) -> tensor<2xf32>
  %17 = stablehlo.add %15, %16 : tensor<2xf32>
  %18 = stablehlo.slice %17 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
  %19 = stablehlo.slice %3 [2:4:2] : (tensor<4xf32>) -> tensor<1xf32>
  %20 = stablehlo.multiply %18, %19 : tensor<1xf32>
  %21 = stablehlo.slice %3 [0:1] : (tensor<4xf32>) -> tensor<1xf32>
  %22 = stablehlo.concatenate %21, %20, dim = 0 : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
  %23 = stablehlo.pad %22, %zero, low = [0], high = [1], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  %24 = stablehlo.pad %17, %zero, low = [1], high = [0], interior = [1] : (tensor<2xf32>, tensor<f32>) -> tensor<4xf32>
  %25 = stablehlo.add %23, %24 : tensor<4xf32>
  %26 = stablehlo.slice %25 [0:3] : (tensor<4xf32>) -> tensor<3xf32>
  %27 = stablehlo.slice %x [2:8:2] : (tensor<8xf32>) -> tensor<3xf32>
  %28 = stablehlo.multiply %26, %27 : tensor<3xf32>
  %29 = stablehlo.slice %x [0:1] : (tensor<8xf32>) -> tensor<1xf32>
  %30 = stablehlo.concatenate %29, %28, dim = 0 : (tensor<1xf32>, tensor<3xf32>) -> tensor<4xf32>
  %31 = stablehlo.pad %30, %zero, low = [0], high = [1], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %32 = stablehlo.pad %25, %zero, low = [1], high = [0], interior = [1] : (tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  %33 = stablehlo.add %31, %32 : tensor<8xf32>
  return %33 : tensor<8xf32>
}
