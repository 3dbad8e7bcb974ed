// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-carry-on-device)' | FileCheck %s

// A number that a kernel makes, that a loop carries on and only kernels read, is an array of one element. The counter,
// by which the host decides, stays a number.
// CHECK: func.func private @kernel
// CHECK: func.func @main(%[[X:.*]]: tensor<f32>, %[[N:.*]]: i32)
// CHECK: %[[LOOP:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %[[X]]) : (i32, tensor<f32>) -> (i32, tensor<f32>)
// CHECK: ^bb0(%[[I:.*]]: i32, %[[BOX:.*]]: tensor<f32>):
// CHECK: %[[NUMBER:.*]] = tensor.extract %[[BOX]][] : tensor<f32>
// CHECK: %[[MADE:.*]] = func.call @kernel(%[[NUMBER]])
// CHECK: scf.yield %{{.*}}, %[[MADE]] : i32, tensor<f32>
// CHECK: return %[[LOOP]]#1 : tensor<f32>
func.func private @kernel(%x: f32) -> tensor<f32> attributes {stablexla.kernel = "loop"} {
  %0 = tensor.from_elements %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func @main(%x: tensor<f32>, %n: i32) -> tensor<f32> {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %first = tensor.extract %x[] : tensor<f32>
  %0:2 = scf.while (%i = %zero, %s = %first) : (i32, f32) -> (i32, f32) {
    %go = arith.cmpi slt, %i, %n : i32
    scf.condition(%go) %i, %s : i32, f32
  } do {
  ^bb0(%i: i32, %s: f32):
    %1 = func.call @kernel(%s) : (f32) -> tensor<f32>
    %2 = tensor.extract %1[] : tensor<f32>
    %3 = arith.addi %i, %one : i32
    scf.yield %3, %2 : i32, f32
  }
  %4 = tensor.from_elements %0#1 : tensor<f32>
  return %4 : tensor<f32>
}

// -----

// A number that decides about the loop stays on the host, though a kernel makes it.
// CHECK-LABEL: // -----
// CHECK: scf.while (%[[S:.*]] = %{{.*}}) : (f32) -> f32
// CHECK-NEXT: arith.cmpf olt, %[[S]]
func.func private @kernel(%x: f32) -> tensor<f32> attributes {stablexla.kernel = "loop"} {
  %0 = tensor.from_elements %x : tensor<f32>
  return %0 : tensor<f32>
}
func.func @main(%x: tensor<f32>, %n: f32) -> tensor<f32> {
  %first = tensor.extract %x[] : tensor<f32>
  %0 = scf.while (%s = %first) : (f32) -> f32 {
    %go = arith.cmpf olt, %s, %n : f32
    scf.condition(%go) %s : f32
  } do {
  ^bb0(%s: f32):
    %1 = func.call @kernel(%s) : (f32) -> tensor<f32>
    %2 = tensor.extract %1[] : tensor<f32>
    scf.yield %2 : f32
  }
  %4 = tensor.from_elements %0 : tensor<f32>
  return %4 : tensor<f32>
}

// -----

// What the host computes without reading anything stays there, too; so does what a branch gives.
// CHECK-LABEL: // -----
// CHECK: scf.if %{{.*}} -> (f32)
func.func @main(%p: i1, %n: f32) -> tensor<f32> {
  %0 = scf.if %p -> (f32) {
    %1 = arith.addf %n, %n : f32
    scf.yield %1 : f32
  } else {
    scf.yield %n : f32
  }
  %2 = tensor.from_elements %0 : tensor<f32>
  return %2 : tensor<f32>
}
