// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-inline-calls{choices=usual+calls.most-inlined=1})' | FileCheck %s

// The calls that a function repeats are one call in a loop. Its state: the number of the call, the call's operand, its
// result, and what is read later.
// CHECK-LABEL: func.func @main
// CHECK: %[[W:.*]]:4 = stablehlo.while(%[[N:.*]] = {{.*}}, %[[X:.*]] = %arg0, %{{.*}} = {{.*}}, %[[KEPT:.*]] = {{.*}})
// CHECK: do {
// CHECK: %[[R:.*]] = stablehlo.sine %[[X]]
// CHECK: %[[NEXT:.*]]:2 = "stablehlo.case"(%[[N]]) ({
// CHECK-NEXT: %[[M:.*]] = stablehlo.multiply %[[R]], %arg1
// CHECK-NEXT: stablehlo.return %[[M]], %[[R]]
// CHECK-NEXT: }, {
// CHECK-NEXT: stablehlo.return %[[X]], %[[KEPT]]
// CHECK: stablehlo.return %{{.*}}, %[[NEXT]]#0, %[[R]], %[[NEXT]]#1
// CHECK: %[[SUM:.*]] = stablehlo.add %[[W]]#3, %[[W]]#2
// CHECK: return %[[SUM]]
func.func @main(%x: tensor<2xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %0 = func.call @g(%x) : (tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.multiply %0, %y : tensor<2xf32>
  %2 = func.call @g(%1) : (tensor<2xf32>) -> tensor<2xf32>
  %3 = stablehlo.add %0, %2 : tensor<2xf32>
  return %3 : tensor<2xf32>
}
func.func private @g(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.sine %x : tensor<2xf32>
  return %0 : tensor<2xf32>
}
