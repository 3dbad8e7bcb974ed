// The first wrong operation, and the pass that broke it: with a mistake in a user's pass, and without.
// RUN: stablexla-run %s --compare=reference --ulp=0 --json | FileCheck %s --check-prefix=JSON
// RUN: stablexla-opt %s --print-pipeline | sed -e 's/canonicalize,cse)/canonicalize,cse,my-mistake)/' > %t.pipeline
// RUN: not stablexla-run %s --load=%S/inputs/wrong_pass.py --pipeline=%t.pipeline --compare=interpreter --compare-dir=%t.small | FileCheck %s --check-prefix=WRONG
// RUN: stablexla-run %t.small/program.mlir --inputs=%t.small/inputs.npz --compare=xla | FileCheck %s --check-prefix=EQUAL
// RUN: not stablexla-run %s --compare=nothing 2>&1 | FileCheck %s --check-prefix=REFUSED

// EQUAL: main against xla: equal (1 operations judged

// JSON: "against": "interpreter"
// JSON: "equal": true

// WRONG: main against interpreter: DIFFERS
// WRONG-NEXT: first wrong operation  %2 = stablehlo.subtract %1, %arg0
// WRONG-NEXT: at {{.*}}compare.mlir:[[@LINE+14]]:8:  %2 = stablehlo.subtract %1, %x
// WRONG-NEXT: result {{.*}} f32[8], 8 of 8 elements differ
// WRONG-NEXT: worst element {{.*}}: here {{.*}}, interpreter {{.*}} (from {{.*}}, {{.*}})
// WRONG-NEXT: found by
// WRONG-NEXT: broken by {{.*}}step 'tensor': the pass my-mistake is added
// WRONG-NEXT: right by the plain pipeline
// WRONG-NEXT: smallest program {{.*}}1 operation: {{.*}}.small/program.mlir

// REFUSED: error: nothing can be compared with 'nothing'
// REFUSED-NEXT: try: interpreter or xla or upstream or plain or source

func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.abs %x : tensor<8xf32>
  %1 = stablehlo.sqrt %0 : tensor<8xf32>
  %2 = stablehlo.subtract %1, %x : tensor<8xf32>
  %3 = stablehlo.multiply %2, %2 : tensor<8xf32>
  return %3 : tensor<8xf32>
}
