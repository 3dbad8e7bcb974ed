// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-expand-ragged-exchanges)' | FileCheck %s

// Offsets and sizes in one exchange, the inputs of all by another; then the rows that came take their places. With a
// channel the groups are of partitions, and those of all_gather, which would count replicas, count all devices.
// CHECK-NOT: custom_call
// CHECK: %[[SENT:.*]] = "stablehlo.all_to_all"(%{{.*}}) <{channel_handle = {{.*}}handle = 7{{.*}}replica_groups = dense<{{\[\[}}1, 0]]> : tensor<1x2xi64>{{.*}} -> tensor<4x3xi64>
// CHECK: stablehlo.slice %[[SENT]] [0:4, 0:1]
// CHECK: %[[TAKEN:.*]] = stablehlo.reduce
// CHECK: %[[ALL:.*]] = "stablehlo.all_gather"(%arg0) <{{.*}}replica_groups = dense<{{\[\[}}1, 0], [3, 2]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<3x2xf32>) -> tensor<6x2xf32>
// CHECK: %[[ROWS:.*]] = "stablehlo.gather"(%[[ALL]], %[[TAKEN]])
// CHECK: stablehlo.select %{{.*}}, %[[ROWS]], %arg1

module attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {
  func.func @main(%x: tensor<3x2xf32>, %y: tensor<5x2xf32>, %begin: tensor<4xi32>, %size: tensor<4xi32>,
                  %place: tensor<4xi32>, %wanted: tensor<4xi32>) -> tensor<5x2xf32> {
    %0 = stablehlo.custom_call @ragged_all_to_all(%x, %y, %begin, %size, %place, %wanted) {
      api_version = 4 : i32,
      backend_config = {channel_id = 7 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}}
      : (tensor<3x2xf32>, tensor<5x2xf32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>)
      -> tensor<5x2xf32>
    return %0 : tensor<5x2xf32>
  }
}
