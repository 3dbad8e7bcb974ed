// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-partition)' | FileCheck %s

// Rows on two devices: each multiplies its own, and the sum over all rows is one over the devices, too. Of the mesh
// nothing is left.
// CHECK-LABEL: module @rows
// CHECK-NOT: sdy
// CHECK: func.func public @main(%[[X:.*]]: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>)
// CHECK: %[[Y:.*]] = stablehlo.multiply %[[X]], %[[X]] : tensor<4x3xf32>
// CHECK: %[[SUM:.*]] = stablehlo.reduce(%[[Y]] init: %{{.*}}) applies stablehlo.add across dimensions = [0] : (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
// CHECK: %[[ALL:.*]] = "stablehlo.all_reduce"(%[[SUM]])
// CHECK: return %[[Y]], %[[ALL]]
// CHECK-NOT: sdy
module @rows attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%x: tensor<8x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<8x3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}, tensor<3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.multiply %x, %x : tensor<8x3xf32>
    %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    return %0, %1 : tensor<8x3xf32>, tensor<3xf32>
  }
}

// -----

// A program of one partition keeps its notes, and one without notes its arrays.
// CHECK-LABEL: module @one
// CHECK: func.func public @main(%{{.*}}: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>})
module @one {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
}

// -----

// CHECK-LABEL: module @without
// CHECK: func.func public @main(%{{.*}}: tensor<8xf32>)
// CHECK-NEXT: call @twice
module @without attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = func.call @twice(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  func.func private @twice(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.add %x, %x : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
