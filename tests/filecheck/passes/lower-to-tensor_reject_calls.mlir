// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-lower-to-tensor)' 2>&1 | FileCheck %s
// RUN: stablexla-opt %s -stablexla-inline-calls -stablexla-lower-to-tensor | FileCheck %s --check-prefix=INLINED

// A call inside of an operation is told of as one of main is.
// CHECK: error: func.call: the call of @other is not inlined
// CHECK-NEXT: from {{.*}}:16:
// CHECK-NEXT: operand 0  f32[4]
// CHECK-NEXT: try: -stablexla-inline-calls -stablexla-lower-to-tensor

// INLINED: scf.if
// INLINED: math.tanh
// INLINED-NOT: call

func.func public @main(%x: tensor<4xf32>, %p: tensor<i1>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = func.call @other(%x) : (tensor<4xf32>) -> tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
func.func private @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.tanh %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
