// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-drop-unreachable,stablexla-replace-imported)' | FileCheck %s

// Functions that main does not need are dropped, public ones too; a scan becomes a loop over its counter.
// CHECK-NOT: @other
// CHECK-LABEL: func.func @main
// CHECK: %[[WIDE:.*]] = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while({{.*}}) : tensor<i64>, tensor<2xf32>, tensor<2x3xf32>
// CHECK: stablehlo.dynamic_slice %[[WIDE]]
// CHECK: stablehlo.add
// CHECK: stablehlo.dynamic_update_slice
// CHECK: return %[[LOOP]]#2, %[[LOOP]]#1
// CHECK-NOT: @other
func.func @main(%x: tensor<3xf32>, %i: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
  %0 = "stablehlo.broadcast"(%x) {broadcast_sizes = array<i64: 2>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %1:2 = chlo.scan(%0) inits(%i) dimension=1 {
  ^bb0(%a: tensor<2xf32>, %c: tensor<2xf32>):
    %2 = stablehlo.add %a, %c : tensor<2xf32>
    stablehlo.return %2, %2 : tensor<2xf32>, tensor<2xf32>
  } : (tensor<2x3xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>)
  return %1#0, %1#1 : tensor<2x3xf32>, tensor<2xf32>
}
func.func @other(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = call @other(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
