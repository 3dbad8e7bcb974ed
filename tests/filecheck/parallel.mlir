// RUN: stablexla-opt %s --stage=llvm --num-threads=2 | FileCheck %s
// RUN: stablexla-opt %s --stage=llvm --num-threads=1 | FileCheck %s --check-prefix=ALONE

// A call with work for several threads goes through the runtime; a small one does not.
// The task unpacks the arguments, which lie in a struct, for the range that it is given.
// CHECK: llvm.func internal @loop_0_impl(
// CHECK: llvm.func @main(
// CHECK: %[[CONTEXT:.*]] = llvm.alloca {{.*}} x !llvm.struct<(ptr, ptr)>
// CHECK: llvm.store %{{.*}}, %[[CONTEXT]] : !llvm.struct<(ptr, ptr)>
// CHECK: %[[TASK:.*]] = llvm.mlir.addressof @loop_0_impl_task
// CHECK: llvm.call @stablexla_parallel_for(%[[TASK]], %[[CONTEXT]], %{{.*}}, %{{.*}}) : (!llvm.ptr, !llvm.ptr, i64, i64) -> ()
// CHECK: llvm.call @loop_1_impl(
// CHECK: llvm.return
// CHECK-DAG: llvm.func @stablexla_parallel_for(!llvm.ptr, !llvm.ptr, i64, i64)
// CHECK-DAG: llvm.func internal @loop_0_impl_task(%[[FROM:.*]]: !llvm.ptr, %[[LO:.*]]: i64, %[[HI:.*]]: i64)
// CHECK: %[[ALL:.*]] = llvm.load %[[FROM]]
// CHECK: %[[X:.*]] = llvm.extractvalue %[[ALL]][0]
// CHECK: %[[Y:.*]] = llvm.extractvalue %[[ALL]][1]
// CHECK: llvm.call @loop_0_impl(%[[X]], %[[Y]], %[[LO]], %[[HI]])

// ALONE-NOT: stablexla_parallel_for
// ALONE: llvm.call @loop_0_impl(

func.func public @main(%x: tensor<1024x1024xf32>, %y: tensor<4xf32>) -> (tensor<1024x1024xf32>, tensor<4xf32>) {
  %0 = stablehlo.exponential %x : tensor<1024x1024xf32>
  %1 = stablehlo.exponential %y : tensor<4xf32>
  return %0, %1 : tensor<1024x1024xf32>, tensor<4xf32>
}
