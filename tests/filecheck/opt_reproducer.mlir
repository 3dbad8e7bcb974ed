// A reproducer is written on request, fails as the first run did, and its command runs in any folder.
// RUN: not stablexla-opt %s --pass-pipeline="builtin.module(stablexla-lower-to-tensor,one-shot-bufferize,cse)" --leaves=func --mlir-pass-pipeline-crash-reproducer=%t.mlir --mlir-print-ir-after-failure 2>&1 | FileCheck %s
// RUN: cd / && not stablexla-opt --run-reproducer %t.mlir 2>&1 | FileCheck %s --check-prefix=AGAIN
// RUN: FileCheck %s --check-prefix=FILE --input-file=%t.mlir

// CHECK: error: stablexla-opt: step 1 'passes': left over:
// CHECK: reproduce: stablexla-opt --run-reproducer {{.*}}.mlir

// AGAIN: error: stablexla-opt: step 1 'passes': left over:

// FILE: // stage source: stablexla-opt {{.*}} --pass-pipeline='builtin.module(stablexla-lower-to-tensor,one-shot-bufferize,cse)' --leaves=func
// FILE: stablehlo.tanh

func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = stablehlo.tanh %x : tensor<16xf32>
  return %0 : tensor<16xf32>
}
