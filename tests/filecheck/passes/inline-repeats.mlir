// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-inline-repeats)' --mlir-print-debuginfo | FileCheck %s

// The kernels of a part are called in the place of its calls, in loops too, with the locations of the call. A result
// may be a parameter. The part goes; other functions stay.
// CHECK-NOT: @part_0
// CHECK: func.func private @loop_0(
// CHECK: func.func public @main(%[[X:[a-z0-9]*]]: tensor<8xf32>
// CHECK-NOT: @part_0
// CHECK: %[[ONE:.*]] = call @loop_0(%[[X]]) {{.*}} loc(#[[FIRST:loc[0-9]+]])
// CHECK-NEXT: %[[LOOP:.*]] = scf.for {{.*}} iter_args(%[[Y:[a-z0-9]*]] = %[[X]])
// CHECK-NEXT: %[[TWO:.*]] = func.call @loop_0(%[[Y]]) {{.*}} loc(#[[SECOND:loc[0-9]+]])
// CHECK-NEXT: scf.yield %[[TWO]]
// CHECK: return %[[ONE]], %[[X]], %[[LOOP]]
// CHECK-DAG: #[[A1:loc[0-9]+]] = loc("a.py":1:1)
// CHECK-DAG: #[[A2:loc[0-9]+]] = loc("a.py":2:1)
// CHECK-DAG: #[[B3:loc[0-9]+]] = loc("b.py":3:1)
// CHECK-DAG: #[[B4:loc[0-9]+]] = loc("b.py":4:1)
// CHECK-DAG: #[[FIRST]] = loc(fused[#[[A1]], #[[A2]]])
// CHECK-DAG: #[[SECOND]] = loc(fused[#[[B3]], #[[B4]]])
func.func private @loop_0(%x: tensor<8xf32>) -> tensor<8xf32> attributes {stablexla.kernel = "loop"} {
  return %x : tensor<8xf32>
}
func.func private @part_0(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) attributes {stablexla.part} {
  %0 = func.call @loop_0(%x) : (tensor<8xf32>) -> tensor<8xf32> loc(fused["part:0"("a.py":1:1), "part:1"("a.py":2:1)])
  return %0, %x : tensor<8xf32>, tensor<8xf32>
}
func.func public @main(%x: tensor<8xf32>, %from: index, %to: index) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %0:2 = func.call @part_0(%x) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) loc(fused["part:0"("a.py":1:1), "part:1"("a.py":2:1)])
  %1 = scf.for %i = %from to %to step %to iter_args(%y = %x) -> tensor<8xf32> {
    %2:2 = func.call @part_0(%y) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) loc(fused["part:0"("b.py":3:1), "part:1"("b.py":4:1)])
    scf.yield %2#0 : tensor<8xf32>
  }
  return %0#0, %0#1, %1 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}
