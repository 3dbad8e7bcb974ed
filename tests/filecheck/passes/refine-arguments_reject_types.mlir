// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments{types=tensor<2x3x4xf32>})' 2>&1 | FileCheck %s --check-prefix=MISFIT
// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments{types=tensor<2x3xf64>})' 2>&1 | FileCheck %s --check-prefix=ELEMENT
// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments{types=tensor<?x3xf32>})' 2>&1 | FileCheck %s --check-prefix=OPEN
// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments)' 2>&1 | FileCheck %s --check-prefix=COUNT
// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-arguments{types=f99})' 2>&1 | FileCheck %s --check-prefix=NONE

// MISFIT: parameter 0 of main is of type tensor<?x?xf32>, which tensor<2x3x4xf32> does not fit
// ELEMENT: parameter 0 of main is of type tensor<?x?xf32>, which tensor<2x3xf64> does not fit
// OPEN: parameter 0 of main: tensor<?x3xf32> leaves extents open
// COUNT: main has 1 parameters, but 0 types are given for them
// NONE: 'f99' is no type
// NONE-NEXT: try: types=tensor<2x3xf32>,tensor<i32>
func.func public @main(%x: tensor<?x?xf32>) -> tensor<?x?xf32> {
  return %x : tensor<?x?xf32>
}
