// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-copy-in-loops)' | FileCheck %s

// CHECK-NOT: memref.copy
// CHECK: linalg.copy ins(%arg0 : memref<4x5xf32>) outs(%arg1 : memref<4x5xf32>)
func.func public @main(%x: memref<4x5xf32>, %y: memref<4x5xf32>) {
  memref.copy %x, %y : memref<4x5xf32> to memref<4x5xf32>
  return
}
