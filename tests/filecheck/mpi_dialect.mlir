// RUN: stablexla-opt %s -split-input-file --stage=buffers | stablexla-opt - -split-input-file -stablexla-collectives-to-mpi | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --stage=buffers | stablexla-opt - -split-input-file -stablexla-collectives-to-mpi=implementation=OpenMPI -stablexla-collectives-to-mpi | FileCheck %s --check-prefix=OPEN

// A sum over all devices is MPI's; what stood there is left for errors.
// CHECK: module @sum attributes {dlti.map = #dlti.map<"MPI:Implementation" = "MPICH">{{.*}}stablexla.collectives = [{{.*}}mpi = "MPICH"
// CHECK: func.func private @collective_0_impl_by_runtime(
// CHECK: call @stablexla_collective(
// CHECK: func.func private @collective_0_impl(%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>, %{{.*}}: index, %{{.*}}: index)
// CHECK: %[[WORLD:.*]] = mpi.comm_world : !mpi.comm
// CHECK: mpi.allreduce(%[[X]], %[[Y]], MPI_SUM, %[[WORLD]]) : memref<4xf32>, memref<4xf32> -> !mpi.retval
// CHECK: scf.if
// CHECK-NEXT: func.call @collective_0_impl_by_runtime(
// OPEN: module @sum attributes {dlti.map = #dlti.map<"MPI:Implementation" = "OpenMPI">{{.*}}mpi = "OpenMPI"
// OPEN: mpi.allreduce
// OPEN-NOT: mpi.allreduce
// Maxima of floating-point numbers, groups of some devices, other computations and types are the runtime's.
// OPEN: module @left
// CHECK-LABEL: module @left
// CHECK-NOT: mpi.
module @sum attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module @left attributes {mhlo.num_replicas = 4 : i32} {
  func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf16>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf16>) {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %a : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4xf32>) -> tensor<4xf32>
    %3 = "stablehlo.all_reduce"(%y) ({
    ^bb0(%a: tensor<f16>, %b: tensor<f16>):
      %s = stablehlo.add %a, %b : tensor<f16>
      stablehlo.return %s : tensor<f16>
    }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<4xf16>) -> tensor<4xf16>
    return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf16>
  }
}

// -----

// Two arrays in one; the device's number is that of the process.
// CHECK-LABEL: module @both
// CHECK: mpi.allreduce({{.*}}MPI_MAX{{.*}} : memref<3xi8>
// CHECK: mpi.allreduce({{.*}}MPI_MAX{{.*}} : memref<1xi8>
// CHECK: %[[RANK:.*]] = mpi.comm_rank(%{{.*}}) : i32
// CHECK-NEXT: arith.extui %[[RANK]] : i32 to i64
module @both attributes {mhlo.num_partitions = 2 : i32} {
  func.func public @main(%x: tensor<3xi8>, %y: tensor<i8>) -> (tensor<3xi8>, tensor<i8>, tensor<ui32>) {
    %0:2 = "stablehlo.all_reduce"(%x, %y) ({
    ^bb0(%a: tensor<i8>, %b: tensor<i8>):
      %s = stablehlo.maximum %a, %b : tensor<i8>
      stablehlo.return %s : tensor<i8>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        use_global_device_ids} : (tensor<3xi8>, tensor<i8>) -> (tensor<3xi8>, tensor<i8>)
    %1 = stablehlo.partition_id : tensor<ui32>
    return %0#0, %0#1, %1 : tensor<3xi8>, tensor<i8>, tensor<ui32>
  }
}
