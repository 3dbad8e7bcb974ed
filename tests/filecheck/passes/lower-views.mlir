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

// -----

// Masks, parts of vectors and vectors of several dimensions; broadcasts of numbers to one are left to MLIR's conversion.
// CHECK-LABEL: func.func @vectors(
// CHECK-NOT: vector.
// CHECK: return
func.func @vectors(%a: memref<64xf32>, %x: f32, %n: index) {
  %zero = arith.constant 0 : index
  %mask = vector.create_mask %n : vector<4xi1>
  %wide = vector.broadcast %x : f32 to vector<2x4xf32>
  %row = vector.extract %wide[1] : vector<4xf32> from vector<2x4xf32>
  vector.maskedstore %a[%zero], %mask, %row : memref<64xf32>, vector<4xi1>, vector<4xf32>
  return
}

// -----

// CHECK-LABEL: func.func @of_a_vector(
// CHECK-NOT: vector.broadcast
// CHECK: return
func.func @of_a_vector(%a: memref<64xf32>, %x: vector<1xf32>) {
  %zero = arith.constant 0 : index
  %wide = vector.broadcast %x : vector<1xf32> to vector<4xf32>
  vector.store %wide, %a[%zero] : memref<64xf32>, vector<4xf32>
  return
}

// -----

// CHECK-LABEL: func.func @two_dimensions(
// CHECK-NOT: vector.fma
// CHECK: return
func.func @two_dimensions(%a: memref<64xf32>) {
  %zero = arith.constant 0 : index
  %x = arith.constant dense<2.0> : vector<2x4xf32>
  %y = vector.fma %x, %x, %x : vector<2x4xf32>
  %row = vector.extract %y[1] : vector<4xf32> from vector<2x4xf32>
  vector.store %row, %a[%zero] : memref<64xf32>, vector<4xf32>
  return
}

// -----

// CHECK-LABEL: func.func @one_dimension(
// CHECK: vector.broadcast
// CHECK: vector.store
func.func @one_dimension(%a: memref<64xf32>, %x: f32) {
  %zero = arith.constant 0 : index
  %wide = vector.broadcast %x : f32 to vector<4xf32>
  vector.store %wide, %a[%zero] : memref<64xf32>, vector<4xf32>
  return
}
