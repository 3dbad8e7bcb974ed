// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// Scalars are carried as values, arrays as tensors.
// CHECK: %[[N:.*]] = tensor.extract %arg1[] : tensor<i32>
// CHECK: %[[LOOP:.*]]:2 = scf.while (%[[I:.*]] = %{{.*}}, %[[V:.*]] = %arg0) : (i32, tensor<4xf32>) -> (i32, tensor<4xf32>)
// CHECK-NEXT: %[[GO:.*]] = arith.cmpi slt, %[[I]], %[[N]] : i32
// CHECK-NEXT: scf.condition(%[[GO]]) %[[I]], %[[V]]
// CHECK: ^bb0(%[[J:.*]]: i32, %[[W:.*]]: tensor<4xf32>):
// CHECK: %[[NEXT:.*]] = arith.addi %[[J]],
// CHECK: %[[TWICE:.*]] = linalg.generic {{.*}} ins(%[[W]], %[[W]] :
// CHECK: scf.yield %[[NEXT]], %[[TWICE]] : i32, tensor<4xf32>
// CHECK: tensor.from_elements %[[LOOP]]#0 : tensor<i32>
func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> (tensor<i32>, tensor<4xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c0, %v = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    %w = stablehlo.add %v, %v : tensor<4xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
  }
  return %r#0, %r#1 : tensor<i32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: // -----
// CHECK: %[[S:.*]] = tensor.extract %arg2[] : tensor<f32>
// CHECK: scf.if %{{.*}} -> (tensor<4xf32>, f32)
// CHECK: %[[NEGATED:.*]] = linalg.generic
// CHECK: scf.yield %[[NEGATED]], %[[S]] :
// CHECK: } else {
// CHECK-NEXT: %[[T:.*]] = arith.negf %[[S]] : f32
// CHECK-NEXT: scf.yield %arg1, %[[T]] :
func.func public @main(%p: tensor<i1>, %x: tensor<4xf32>, %s: tensor<f32>) -> (tensor<4xf32>, tensor<f32>) {
  %0:2 = "stablehlo.if"(%p) ({
    %a = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %a, %s : tensor<4xf32>, tensor<f32>
  }, {
    %b = stablehlo.negate %s : tensor<f32>
    stablehlo.return %x, %b : tensor<4xf32>, tensor<f32>
  }) : (tensor<i1>) -> (tensor<4xf32>, tensor<f32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<f32>
}

// -----

// The branches of a case are halved until one is left; as unsigned, a negative index is one of the last branch.
// CHECK-LABEL: // -----
// CHECK: %[[I:.*]] = tensor.extract %arg0[] : tensor<i32>
// CHECK: %[[FIRST:.*]] = arith.cmpi ult, %[[I]], %{{.*}} : i32
// CHECK: scf.if %[[FIRST]]
// CHECK: arith.negf
// CHECK: } else {
// CHECK: %[[SECOND:.*]] = arith.cmpi ult, %[[I]], %{{.*}} : i32
// CHECK-NEXT: scf.if %[[SECOND]]
// CHECK: math.absf
// CHECK: } else {
// CHECK-NEXT: scf.yield %arg1
// CHECK-NOT: arith.cmpi
func.func public @main(%i: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%i) ({
    %a = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    %a = stablehlo.abs %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
