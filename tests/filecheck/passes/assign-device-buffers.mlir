// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-assign-device-buffers{num-threads=8})' | FileCheck %s

// Buffers as on the CPU. A launch is not shared by threads of the host, whatever its grain.
// CHECK-LABEL: func.func public @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<4xf32> {stablexla.role = "parameter"}
// CHECK-SAME: %[[C:[a-z0-9]+]]: memref<16xi8> {stablexla.role = "constant",
// CHECK-SAME: %[[R:[a-z0-9]+]]: memref<4xf32> {stablexla.role = "result"}
// CHECK-SAME: %[[ARENA:[a-z0-9]+]]: memref<64xi8> {stablexla.role = "arena"}
// CHECK: %[[TEMPORARY:.*]] = memref.view %[[ARENA]]
// CHECK: call @turn_impl(%[[X]], %[[TEMPORARY]],
// CHECK: call @add_impl(%[[TEMPORARY]], %{{.*}}, %[[TEMPORARY]], %{{.*}}, %{{.*}}) : (
// CHECK: call @turn_impl(%[[TEMPORARY]], %[[R]],
#loop = {in_place = [{input = 0 : i64, result = 0 : i64}], packs = [], path = "emitted", phases = [{function = "add_impl", grain = 10 : i64, items = 64 : i64}], scratch = [], updates = []}
#turn = {in_place = [], packs = [], path = "emitted", phases = [{function = "turn_impl", grain = 64 : i64, items = 64 : i64}], scratch = [], updates = []}
func.func private @add_impl(memref<4xf32>, memref<4xf32>, memref<4xf32>, index, index)
func.func private @turn_impl(memref<4xf32>, memref<4xf32>, index, index)
func.func private @add(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "loop", stablexla.impl = #loop} {
  return %x : tensor<4xf32>
}
func.func private @turn(%x: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "loop", stablexla.impl = #turn} {
  return %x : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %0 = call @turn(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = call @add(%0, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %2 = call @turn(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// What moves between arrays is one copy on the device.
// CHECK-LABEL: // -----
// CHECK: func.func public @main(
// CHECK-SAME: %[[X:[a-z0-9]+]]: memref<4xf32> {stablexla.role = "parameter"}
// CHECK-SAME: memref<4xf32> {stablexla.role = "result"}
// CHECK-SAME: %[[S:[a-z0-9]+]]: memref<4xf32> {stablexla.role = "result"}
// CHECK: memref.copy %[[X]], %[[S]] : memref<4xf32> to memref<4xf32>
#loop = {in_place = [{input = 0 : i64, result = 0 : i64}], packs = [], path = "emitted", phases = [{function = "copy_impl", grain = 10 : i64, items = 1 : i64}], scratch = [], updates = []}
func.func private @copy_impl(memref<4xf32>, memref<4xf32>, index, index)
func.func private @copy(%x: tensor<4xf32>) -> tensor<4xf32> attributes {stablexla.kernel = "loop", stablexla.impl = #loop} {
  return %x : tensor<4xf32>
}
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = call @copy(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %n = arith.constant 1 : i32
  return %0, %x : tensor<4xf32>, tensor<4xf32>
}
