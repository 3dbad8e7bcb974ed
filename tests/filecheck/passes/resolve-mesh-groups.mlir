// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-resolve-mesh-groups)' | FileCheck %s

// Groups along one axis of a mesh are lists of its devices.
// CHECK-LABEL: module @along_y
// CHECK: "stablehlo.all_gather"
// CHECK-SAME: replica_groups = dense<{{\[\[}}0, 1, 2], [3, 4, 5]]> : tensor<2x3xi64>
module @along_y attributes {mhlo.num_partitions = 6 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=3]>
  func.func public @main(%x: tensor<2xf32>) -> tensor<6xf32> {
    %0 = "stablehlo.all_gather"(%x) {
      all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
      replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "y">]>
    } : (tensor<2xf32>) -> tensor<6xf32>
    return %0 : tensor<6xf32>
  }
}

// -----

// Lists of numbers are left alone, in the order in which they stand.
// CHECK-LABEL: module @numbers
// CHECK: replica_groups = dense<{{\[\[}}1, 0]]> : tensor<1x2xi64>
module @numbers attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%x: tensor<2xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_gather"(%x) {
      all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
      replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>
    } : (tensor<2xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// A program for one device keeps its axes: that is stablexla-drop-shardings' part.
// CHECK-LABEL: module @one
// CHECK: replica_groups = #stablehlo.replica_group_mesh_axes
module @one {
  sdy.mesh @mesh = <["x"=1]>
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_gather"(%x) {
      all_gather_dim = 0 : i64,
      replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>
    } : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
