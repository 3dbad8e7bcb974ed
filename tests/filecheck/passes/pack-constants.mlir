// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-pack-constants)' | FileCheck %s

// The phase that packs a constant is run now: the call holds what it makes, and its function is dropped. Here it doubles.
// CHECK-NOT: func.func private @product_pack
// CHECK: func.func private @product_impl
// CHECK-LABEL: func.func public @main
// CHECK: call @product(%arg0, %{{.*}}) {stablexla.packed = [{packing = {function = "product_pack", input = 1 : i64, scratch = 0 : i64}, value = dense<
// CHECK-SAME: [0, 0, 0, 64, 0, 0, -128, 64]> : tensor<8xi8>}]}
#impl = {in_place = [], packs = [{function = "product_pack", input = 1 : i64, scratch = 0 : i64}], path = "emitted", phases = [{function = "product_pack", grain = 1 : i64, items = 2 : i64}, {function = "product_impl", grain = 1 : i64, items = 2 : i64}], scratch = [memref<2xf32>], updates = []}
func.func private @product_pack(%x: memref<2xf32>, %w: memref<2xf32>, %r: memref<2xf32>, %packed: memref<2xf32>, %lo: index, %hi: index) {
  %one = arith.constant 1 : index
  scf.for %i = %lo to %hi step %one {
    %a = memref.load %w[%i] : memref<2xf32>
    %b = arith.addf %a, %a : f32
    memref.store %b, %packed[%i] : memref<2xf32>
  }
  return
}
func.func private @product_impl(%x: memref<2xf32>, %w: memref<2xf32>, %r: memref<2xf32>, %packed: memref<2xf32>, %lo: index, %hi: index) {
  return
}
func.func private @product(%x: tensor<2xf32>, %w: tensor<2xf32>) -> tensor<2xf32> attributes {stablexla.kernel = "contraction", stablexla.impl = #impl} {
  return %x : tensor<2xf32>
}
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = call @product(%x, %w) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

// What is no constant is packed in each call; the function is kept for that, also where another call has a constant.
// CHECK-LABEL: // -----
// CHECK: func.func private @product_pack
// CHECK: func.func public @main
// CHECK: call @product(%arg0, %{{.*}}) {stablexla.packed =
// CHECK: call @product(%arg0, %arg0) : (
#impl = {in_place = [], packs = [{function = "product_pack", input = 1 : i64, scratch = 0 : i64}], path = "emitted", phases = [{function = "product_pack", grain = 1 : i64, items = 2 : i64}, {function = "product_impl", grain = 1 : i64, items = 2 : i64}], scratch = [memref<2xf32>], updates = []}
func.func private @product_pack(%x: memref<2xf32>, %w: memref<2xf32>, %r: memref<2xf32>, %packed: memref<2xf32>, %lo: index, %hi: index) {
  %one = arith.constant 1 : index
  scf.for %i = %lo to %hi step %one {
    %a = memref.load %w[%i] : memref<2xf32>
    %b = arith.addf %a, %a : f32
    memref.store %b, %packed[%i] : memref<2xf32>
  }
  return
}
func.func private @product_impl(%x: memref<2xf32>, %w: memref<2xf32>, %r: memref<2xf32>, %packed: memref<2xf32>, %lo: index, %hi: index) {
  return
}
func.func private @product(%x: tensor<2xf32>, %w: tensor<2xf32>) -> tensor<2xf32> attributes {stablexla.kernel = "contraction", stablexla.impl = #impl} {
  return %x : tensor<2xf32>
}
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = call @product(%x, %w) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = call @product(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}
