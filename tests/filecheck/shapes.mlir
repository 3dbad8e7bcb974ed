// Extents of parameters become those of all arrays. An assertion that holds goes, and one that fails is told.
// RUN: stablexla-opt %s --stage=stablehlo --refine-arguments='tensor<4x3xf32>, tensor<3xf32>' | FileCheck %s
// RUN: stablexla-opt %s --stage=tensor --refine-arguments='tensor<4x3xf32>, tensor<3xf32>' | FileCheck %s --check-prefix=TENSOR
// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments{types=tensor<2x3xf32>,tensor<3xf32>})' | FileCheck %s --check-prefix=ONLY
// RUN: not stablexla-opt %s --stage=tensor --refine-arguments='tensor<1x3xf32>,tensor<3xf32>' 2>&1 | FileCheck %s --check-prefix=ASSERTION
// RUN: not stablexla-opt %s --stage=tensor --refine-arguments='tensor<4x2xf32>,tensor<3xf32>' 2>&1 | FileCheck %s --check-prefix=MISFIT
// RUN: not stablexla-opt %s --stage=tensor 2>&1 | FileCheck %s --check-prefix=OPEN
// RUN: stablexla-run %s --shapes 4x3 | FileCheck %s --check-prefix=SHOWN
// RUN: not stablexla-run %s 2>&1 | FileCheck %s --check-prefix=NO-SHAPE

// CHECK: // stage stablehlo: stablexla-opt {{.*}} --refine-arguments='tensor<4x3xf32>, tensor<3xf32>'
// CHECK: func.func public @main(%[[X:.*]]: tensor<4x3xf32>, %[[V:.*]]: tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NOT: dynamic
// CHECK-NOT: custom_call
// CHECK: %[[W:.*]] = stablehlo.broadcast_in_dim %[[V]], dims = [1] : (tensor<3xf32>) -> tensor<4x3xf32>
// CHECK: stablehlo.add %[[X]], %[[W]] : tensor<4x3xf32>

// TENSOR: @main(%{{.*}}: tensor<4x3xf32>, %{{.*}}: tensor<3xf32>) -> tensor<4x3xf32>

// ONLY: @main(%[[X:.*]]: tensor<2x3xf32>
// ONLY: stablehlo.custom_call @stablehlo.shape_refinement_operand_wrapper(%[[X]]

// ASSERTION: error: at least two rows, but there are 1
// MISFIT: error: parameter 0 of main is of type tensor<?x3xf32>, which tensor<4x2xf32> does not fit
// OPEN: error: parameter 0 of main is tensor<?x3xf32>: its extents must be known first
// SHOWN: f32[4,3]
// NO-SHAPE: error: parameter 0 (x) takes f32[?,3]: its shape is not known
// NO-SHAPE-NEXT: try: --shapes 2x3

func.func public @main(%x: tensor<?x3xf32> loc("x"), %v: tensor<3xf32>) -> tensor<?x3xf32> {
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %enough = stablehlo.compare GE, %n, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%enough, %n) {
    api_version = 2 : i32, error_message = "at least two rows, but there are {0}", has_side_effect = true
  } : (tensor<i1>, tensor<i32>) -> ()
  %rows = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %three = stablehlo.constant dense<3> : tensor<1xi32>
  %shape = stablehlo.concatenate %rows, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %w = stablehlo.dynamic_broadcast_in_dim %v, %shape, dims = [1] : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  %y = stablehlo.add %x, %w : tensor<?x3xf32>
  return %y : tensor<?x3xf32>
}
