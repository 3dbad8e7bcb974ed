// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --stage=buffers | FileCheck %s --check-prefix=BUFFERS

// A collective is a kernel with an effect, whose configuration says who takes part and which bytes go where; its body
// holds the computation.
// CHECK: module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32}
// CHECK: func.func private @collective_0(%{{.*}}: tensor<4xf32>) -> tensor<4xf32>
// CHECK-SAME: copies = [{extents = [16], source_step = 0 : i64, source_strides = [1], target_step = 0 : i64, target_strides = [1]}]
// CHECK-SAME: groups = {{\[}}[0, 2], [1, 3]]
// CHECK-SAME: op = "all_reduce"
// CHECK: linalg.generic
// CHECK: arith.addf
// CHECK: func.func public @main
// CHECK: call @collective_0(%{{.*}}) {stablexla.effect} : (tensor<4xf32>) -> tensor<4xf32>

// BUFFERS: module attributes {{.*}}stablexla.collectives = [{{.*}}op = "all_reduce"
// BUFFERS: func.func private @stablexla_collective(i64, !llvm.ptr, !llvm.ptr, !llvm.ptr)
// BUFFERS: func.func private @collective_0_combine(%{{.*}}: memref<4xf32>, %{{.*}}: memref<4xf32>, %{{.*}}: memref<4xf32>, %{{.*}}: index, %{{.*}}: index)
// BUFFERS: vector.load
// BUFFERS: func.func private @collective_0_impl
// BUFFERS: %[[COMBINE:.*]] = constant @collective_0_combine
// BUFFERS: %[[ADDRESS:.*]] = builtin.unrealized_conversion_cast %[[COMBINE]] : {{.*}} to !llvm.ptr
// BUFFERS: call @stablexla_collective(%c0_i64, %{{.*}}, %{{.*}}, %[[ADDRESS]])
module attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// The number of a device is asked for once, at the beginning; of what there is one, the number is 0.
// CHECK: func.func private @device_0() -> tensor<i32> attributes {stablexla.config = {partitions = 3 : i64, what = "partition_id"}
// CHECK: func.func public @main
// CHECK: %[[ASKED:.*]] = call @device_0()
// CHECK-NEXT: %[[NUMBER:.*]] = tensor.extract %[[ASKED]][]
// CHECK-NOT: call
// CHECK: arith.addi %[[NUMBER]], %[[NUMBER]]
// BUFFERS: call @stablexla_device_id() : () -> i64
module attributes {mhlo.num_partitions = 3 : i32} {
  func.func public @main() -> (tensor<ui32>, tensor<ui32>) {
    %0 = stablehlo.partition_id : tensor<ui32>
    %1 = stablehlo.partition_id : tensor<ui32>
    %2 = stablehlo.add %0, %1 : tensor<ui32>
    %3 = stablehlo.replica_id : tensor<ui32>
    return %2, %3 : tensor<ui32>, tensor<ui32>
  }
}

// -----

// What is received comes after what can be sent before; groups that are axes of a mesh have become numbers.
// CHECK-DAG: channel = 7 : i64, {{.*}}op = "send"{{.*}}pairs = {{\[}}[0, 1], [1, 0]]
// CHECK-DAG: channel = 7 : i64, {{.*}}op = "recv"{{.*}}pairs = {{\[}}[0, 1], [1, 0]]
// CHECK-DAG: groups = {{\[}}[0, 1]]{{.*}}op = "all_gather"
// CHECK: func.func public @main(%[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT: call @{{.*}}(%[[X]]) {stablexla.effect} : (tensor<4xf32>) -> ()
// CHECK-NEXT: %[[GATHERED:.*]] = call @{{.*}}(%[[X]]) {stablexla.effect} : (tensor<4xf32>) -> tensor<8xf32>
// CHECK-NEXT: %[[DATA:.*]] = call @{{.*}}() {stablexla.effect} : () -> tensor<4xf32>
// CHECK-NEXT: return %[[DATA]], %[[GATHERED]]
module attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<8xf32>) {
    %t = stablehlo.create_token : !stablehlo.token
    %0:2 = "stablehlo.recv"(%t) {
      channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
      source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>
    } : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %1 = "stablehlo.send"(%x, %t) {
      channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>,
      source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>
    } : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    %2 = "stablehlo.all_gather"(%x) {
      all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>,
      use_global_device_ids
    } : (tensor<4xf32>) -> tensor<8xf32>
    return %0#0, %2 : tensor<4xf32>, tensor<8xf32>
  }
}
