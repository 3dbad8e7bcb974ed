// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-resolve-mesh-groups)' 2>&1 | FileCheck %s

// CHECK: stablehlo.all_gather: the mesh has no axis 'z': it has 'x'
// CHECK-NEXT: from {{.*}}resolve-mesh-groups_reject_axes.mlir{{.*}}:8:
module attributes {mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%x: tensor<2xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_gather"(%x) {
      all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids,
      replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "z">]>
    } : (tensor<2xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
