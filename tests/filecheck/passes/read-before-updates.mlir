// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-read-before-updates)' | FileCheck %s

// Calls and scalar operations that read the old array after its update are moved before it, with what they need.
// CHECK-LABEL: func.func public @main
// CHECK: scf.while
// CHECK: do {
// CHECK: %[[NEXT:.*]] = arith.addi
// CHECK: %[[READ:.*]] = tensor.extract %[[OLD:.*]][%[[NEXT]]]
// CHECK-NEXT: %[[TURNED:.*]] = func.call @turn(%[[OLD]])
// CHECK-NEXT: %[[NEW:.*]] = func.call @update(%[[OLD]]
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %{{.*}}, %[[READ]]
// CHECK: scf.yield %[[NEXT]], %[[SUM]], %[[NEW]], %[[TURNED]]
#update = {in_place = [], packs = [], path = "general", phases = [], scratch = [], updates = [{input = 0 : i64, result = 0 : i64}]}
#turn = {in_place = [], packs = [], path = "emitted", phases = [], scratch = [], updates = []}
func.func private @update(%x: tensor<4xf32>, %i: index) -> tensor<4xf32> attributes {stablexla.kernel = "general", stablexla.impl = #update} {
  return %x : tensor<4xf32>
}
func.func private @turn(%x: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "loop", stablexla.impl = #turn} {
  return %x : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %0:4 = scf.while (%i = %c0, %s = %zero, %a = %x, %b = %x) : (index, f32, tensor<4xf32>, tensor<4xf32>) -> (index, f32, tensor<4xf32>, tensor<4xf32>) {
    %go = arith.cmpi slt, %i, %c4 : index
    scf.condition(%go) %i, %s, %a, %b : index, f32, tensor<4xf32>, tensor<4xf32>
  } do {
  ^bb0(%i: index, %s: f32, %a: tensor<4xf32>, %b: tensor<4xf32>):
    %new = func.call @update(%a, %i) : (tensor<4xf32>, index) -> tensor<4xf32>
    %next = arith.addi %i, %c1 : index
    %read = tensor.extract %a[%next] : tensor<4xf32>
    %sum = arith.addf %s, %read : f32
    %turned = func.call @turn(%a) : (tensor<4xf32>) -> tensor<4xf32>
    scf.yield %next, %sum, %new, %turned : index, f32, tensor<4xf32>, tensor<4xf32>
  }
  return %0#2, %0#3 : tensor<4xf32>, tensor<4xf32>
}

// -----

// What needs the new array stays, and so does all else that reads the old one, a second update among them. A parameter
// that is not donated is copied in any case.
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[Z:.*]] = arith.constant
// CHECK-NEXT: %[[A:.*]] = call @turn(%arg0)
// CHECK-NEXT: %[[NEW:.*]] = call @update(%[[A]]
// CHECK-NEXT: call @turn(%[[A]])
// CHECK-NEXT: call @add(%[[NEW]], %[[A]])
// CHECK-NEXT: %[[B:.*]] = call @turn(%[[NEW]])
// CHECK-NEXT: call @update(%[[B]]
// CHECK-NEXT: call @update(%[[B]]
// CHECK-NEXT: call @update(%arg0
// CHECK-NEXT: call @turn(%arg0)
#update = {in_place = [], packs = [], path = "general", phases = [], scratch = [], updates = [{input = 0 : i64, result = 0 : i64}]}
#other = {in_place = [], packs = [], path = "emitted", phases = [], scratch = [], updates = []}
func.func private @update(%x: tensor<4xf32>, %i: index) -> tensor<4xf32> attributes {stablexla.kernel = "general", stablexla.impl = #update} {
  return %x : tensor<4xf32>
}
func.func private @turn(%x: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "loop", stablexla.impl = #other} {
  return %x : tensor<4xf32>
}
func.func private @add(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "loop", stablexla.impl = #other} {
  return %x : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %a = call @turn(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %new = call @update(%a, %c0) : (tensor<4xf32>, index) -> tensor<4xf32>
  %1 = call @turn(%a) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = call @add(%new, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b = call @turn(%new) : (tensor<4xf32>) -> tensor<4xf32>
  %3 = call @update(%b, %c0) : (tensor<4xf32>, index) -> tensor<4xf32>
  %4 = call @update(%b, %c0) : (tensor<4xf32>, index) -> tensor<4xf32>
  %5 = call @update(%x, %c0) : (tensor<4xf32>, index) -> tensor<4xf32>
  %6 = call @turn(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2, %3, %4, %5, %6 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
