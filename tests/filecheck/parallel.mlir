// RUN: stablexla-opt %s --stage=llvm --num-threads=2 | FileCheck %s
// RUN: stablexla-opt %s --stage=llvm --num-threads=1 | FileCheck %s --check-prefix=ALONE

// A call with work for several threads goes through a launcher and the runtime; a small one does not.
// CHECK: llvm.func internal @loop_0_impl(
// CHECK: llvm.func @main(
// CHECK: %[[TASK:.*]] = llvm.mlir.addressof @loop_0_impl_task
// CHECK: llvm.call @stablexla_launch_0(%[[TASK]],
// CHECK: llvm.call @loop_1_impl(
// CHECK: llvm.return
// CHECK-DAG: llvm.func @stablexla_parallel_for(!llvm.ptr, !llvm.ptr, i64, i64)
// CHECK-DAG: llvm.func internal @stablexla_launch_0(
// CHECK-DAG: llvm.func internal @loop_0_impl_task(%[[FROM:.*]]: !llvm.ptr, %[[LO:.*]]: i64, %[[HI:.*]]: i64)
// CHECK: llvm.call @loop_0_impl(%{{.*}}, %{{.*}}, %[[LO]], %[[HI]])

// ALONE-NOT: stablexla_parallel_for
// ALONE: llvm.call @loop_0_impl(

func.func public @main(%x: tensor<1024x1024xf32>, %y: tensor<4xf32>) -> (tensor<1024x1024xf32>, tensor<4xf32>) {
  %0 = stablehlo.exponential %x : tensor<1024x1024xf32>
  %1 = stablehlo.exponential %y : tensor<4xf32>
  return %0, %1 : tensor<1024x1024xf32>, tensor<4xf32>
}
