// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-refine-shapes)' 2>&1 | FileCheck %s

// CHECK: parameter 0 of main is tensor<?xf32>: its extents must be known first
// CHECK-NEXT: try: the pass stablexla-refine-arguments{types=...}
func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  return %x : tensor<?xf32>
}
