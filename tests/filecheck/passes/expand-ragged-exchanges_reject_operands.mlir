// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-expand-ragged-exchanges)' 2>&1 | FileCheck %s

// Three pieces for groups of two devices.
// CHECK: error: ragged_all_to_all: offsets and sizes must be vectors of a multiple of 2 numbers, as many as a group has devices
module attributes {mhlo.num_replicas = 2 : i32} {
  func.func @main(%x: tensor<3xf32>, %y: tensor<5xf32>, %n: tensor<3xi32>) -> tensor<5xf32> {
    %0 = stablehlo.custom_call @ragged_all_to_all(%x, %y, %n, %n, %n, %n) {
      api_version = 4 : i32, backend_config = {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}}
      : (tensor<3xf32>, tensor<5xf32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>, tensor<3xi32>) -> tensor<5xf32>
    return %0 : tensor<5xf32>
  }
}
