// RUN: stablexla-opt %s --load=%S/../inputs/chlo_rule.py --pass-pipeline='builtin.module(stablexla-keep-ruled)' | FileCheck %s
// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-keep-ruled)' | FileCheck %s --check-prefix=WITHOUT

// An operation of CHLO that a user's rule is for is kept as a composite, with what it is by itself as decomposition;
// other operations of CHLO, and of StableHLO with a rule, are left alone. Without rules nothing is done.
// CHECK-LABEL: func.func public @main
// CHECK-NEXT: %[[KEPT:.*]] = stablehlo.composite "chlo.digamma" %arg0 {decomposition = @[[NAME:.*]]}
// CHECK-NEXT: %[[OTHER:.*]] = chlo.polygamma %[[KEPT]], %[[KEPT]]
// CHECK-NEXT: stablehlo.tanh %[[OTHER]]
// CHECK: func.func private @[[NAME]](
// CHECK-NEXT: chlo.digamma

// WITHOUT-LABEL: func.func public @main
// WITHOUT-NEXT: chlo.digamma
// WITHOUT-NEXT: chlo.polygamma
// WITHOUT-NEXT: stablehlo.tanh
// WITHOUT-NOT: func.func

func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = chlo.digamma %x : tensor<4xf32> -> tensor<4xf32>
  %1 = chlo.polygamma %0, %0 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
  %2 = stablehlo.tanh %1 : tensor<4xf32>
  return %2 : tensor<4xf32>
}
