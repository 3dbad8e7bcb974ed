// RUN: stablexla-opt %s --split-input-file --pass-pipeline='builtin.module(stablexla-lower-views)' | FileCheck %s

// A view becomes an offset and strides, by arithmetic on numbers; the loop around it, branches.
// CHECK-LABEL: func.func @views(
// CHECK-NOT: {{scf|affine|subview}}
// CHECK: cf.cond_br
// CHECK: memref.reinterpret_cast
// CHECK: return
func.func @views(%a: memref<64xf32>, %n: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %number = arith.constant 1.0 : f32
  scf.for %i = %zero to %n step %one {
    %view = memref.subview %a[%i] [4] [1] : memref<64xf32> to memref<4xf32, strided<[1], offset: ?>>
    memref.store %number, %view[%zero] : memref<4xf32, strided<[1], offset: ?>>
  }
  return
}

// -----

// A module without any of these is left as it is, loops too.
// CHECK-LABEL: func.func @plain(
// CHECK: scf.for
// CHECK: arith.addi
// CHECK: return
func.func @plain(%a: memref<64xf32>, %n: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %number = arith.constant 1.0 : f32
  scf.for %i = %zero to %n step %one {
    %next = arith.addi %i, %one : index
    memref.store %number, %a[%next] : memref<64xf32>
  }
  return
}
