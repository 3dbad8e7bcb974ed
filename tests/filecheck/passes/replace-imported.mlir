// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-replace-imported)' | FileCheck %s

// A deprecated operation is one of those that took its place; a scan is a loop over its counter.
// CHECK-LABEL: func.func public @main
// CHECK-NOT: "stablehlo.broadcast"
// CHECK: %[[WIDE:.*]] = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
// CHECK-NOT: chlo.scan
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while({{.*}}) : tensor<i64>, tensor<2xf32>, tensor<2x3xf32>
// CHECK: stablehlo.dynamic_slice %[[WIDE]]
// CHECK: stablehlo.add
// CHECK: stablehlo.dynamic_update_slice
// CHECK: return %[[LOOP]]#2, %[[LOOP]]#1
func.func public @main(%x: tensor<3xf32>, %i: tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>) {
  %0 = "stablehlo.broadcast"(%x) {broadcast_sizes = array<i64: 2>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %1:2 = chlo.scan(%0) inits(%i) dimension=1 {
  ^bb0(%a: tensor<2xf32>, %c: tensor<2xf32>):
    %2 = stablehlo.add %a, %c : tensor<2xf32>
    stablehlo.return %2, %2 : tensor<2xf32>, tensor<2xf32>
  } : (tensor<2x3xf32>, tensor<2xf32>) -> (tensor<2x3xf32>, tensor<2xf32>)
  return %1#0, %1#1 : tensor<2x3xf32>, tensor<2xf32>
}

// -----

// An operation that says its shape at run time, and whose result has it, is the plain one; in functions other than main
// too, and in regions. One whose result is not known waits.
// CHECK-LABEL: // -----
// CHECK: func.func private @static
// CHECK: "stablehlo.if"
// CHECK-NEXT: stablehlo.reshape %{{.*}} : (tensor<6xf32>) -> tensor<2x3xf32>
// CHECK: func.func private @open
// CHECK-NEXT: stablehlo.dynamic_reshape %{{.*}}, %{{.*}} : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x3xf32>
func.func private @static(%x: tensor<6xf32>, %y: tensor<2x3xf32>, %s: tensor<2xi32>, %p: tensor<i1>) -> tensor<2x3xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.dynamic_reshape %x, %s : (tensor<6xf32>, tensor<2xi32>) -> tensor<2x3xf32>
    stablehlo.return %1 : tensor<2x3xf32>
  }, {
    stablehlo.return %y : tensor<2x3xf32>
  }) : (tensor<i1>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
func.func private @open(%x: tensor<6xf32>, %s: tensor<2xi32>) -> tensor<?x3xf32> {
  %0 = stablehlo.dynamic_reshape %x, %s : (tensor<6xf32>, tensor<2xi32>) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}
