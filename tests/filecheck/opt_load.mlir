// Passes and lowering rules of a user's own, from a Python file.
// RUN: stablexla-opt %s --load=%S/inputs/my_passes.py -stablexla-lower-to-tensor -my-rename=to=other | FileCheck %s
// RUN: stablexla-opt %s --load=%S/inputs/my_passes.py --rule=stablehlo.tanh=my_passes:twice --stage=tensor | FileCheck %s --check-prefix=RULE
// RUN: not stablexla-opt %s --load=%S/inputs/my_passes.py --pass-pipeline="builtin.module(stablexla-python{function=my_passes:fails})" 2>&1 | FileCheck %s --check-prefix=FAILED

// CHECK: func.func public @other
// CHECK: arith.negf

// RULE: arith.addf

// FAILED: failed in stablexla-python{function=my_passes:fails}
// FAILED-NEXT: ValueError: on purpose  (my_passes.py:

func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = stablehlo.tanh %x : tensor<16xf32>
  return %0 : tensor<16xf32>
}
