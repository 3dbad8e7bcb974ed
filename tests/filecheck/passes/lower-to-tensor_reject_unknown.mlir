// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-lower-to-tensor)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}custom_call: there is no target 'nobody'; none is registered
// CHECK-NEXT: from {{.*}}:8:
// CHECK-NEXT: try: --load=FILE.py, which calls sx.register_custom_call('nobody', function) or has a rule of your own, @sx.lowers('stablehlo.custom_call:nobody'); stablexla-compile takes --c-function=nobody

func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @nobody(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
