// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-order-channels)' | FileCheck %s

// What is received from a device waits until all is done that does not need it: the send that it is the answer to.
// CHECK-LABEL: module @answer
// CHECK: func.func public @main
// CHECK: stablehlo.multiply %arg0, %arg0
// CHECK: "stablehlo.send"
// CHECK: "stablehlo.recv"
// CHECK: stablehlo.add
module @answer attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %t = stablehlo.create_token : !stablehlo.token
    %0:2 = "stablehlo.recv"(%t) {
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, is_host_transfer = false,
      source_target_pairs = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>
    } : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %1 = stablehlo.add %0#0, %x : tensor<4xf32>
    %2 = stablehlo.multiply %x, %x : tensor<4xf32>
    %3 = "stablehlo.send"(%2, %t) {
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, is_host_transfer = false,
      source_target_pairs = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>
    } : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    return %1 : tensor<4xf32>
  }
}

// -----

// What is sent is what was received: nothing can be moved.
// CHECK-LABEL: module @echo
// CHECK: "stablehlo.recv"
// CHECK: "stablehlo.send"
module @echo attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %t = stablehlo.create_token : !stablehlo.token
    %0:2 = "stablehlo.recv"(%t) {
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, is_host_transfer = false,
      source_target_pairs = dense<[[1, 0]]> : tensor<1x2xi64>
    } : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %1 = "stablehlo.send"(%0#0, %0#1) {
      channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, is_host_transfer = false,
      source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>
    } : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    return %0#0 : tensor<4xf32>
  }
}

// -----

// What comes from the host keeps its place, and so does everything in a program for one device.
// CHECK-LABEL: module @host
// CHECK: "stablehlo.recv"
// CHECK: stablehlo.add
// CHECK: stablehlo.multiply
// CHECK: "stablehlo.send"
module @host attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %t = stablehlo.create_token : !stablehlo.token
    %0:2 = "stablehlo.recv"(%t) {
      channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>, is_host_transfer = true
    } : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %1 = stablehlo.add %0#0, %x : tensor<4xf32>
    %2 = stablehlo.multiply %x, %x : tensor<4xf32>
    %3 = "stablehlo.send"(%2, %t) {
      channel_handle = #stablehlo.channel_handle<handle = 3, type = 2>, is_host_transfer = true
    } : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    return %1 : tensor<4xf32>
  }
}
