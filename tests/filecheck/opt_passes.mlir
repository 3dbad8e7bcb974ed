// Passes as options, of either MLIR and in Python, in the order in which they are given; the pipeline that they make.
// RUN: stablexla-opt %s -split-input-file -canonicalize="max-iterations=3" -cse -chlo-legalize-to-stablehlo --stablexla-lower-to-tensor -affine-loop-tile=tile-sizes=2 --dump-pass-pipeline 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=PIPELINE --input-file=%t
// A pipeline through both MLIRs, with nests on both sides.
// RUN: stablexla-opt %s -split-input-file --pass-pipeline="builtin.module(func.func(cse,chlo-legalize-to-stablehlo),stablexla-lower-to-tensor,func.func(linalg-fuse-elementwise-ops,cse),any(canonicalize))" | FileCheck %s --check-prefixes=CHECK,MIXED

// PIPELINE: builtin.module(canonicalize{max-iterations=3},cse,{{(func.func\()?}}chlo-legalize-to-stablehlo{{\)?}},stablexla-lower-to-tensor,func.func(affine-loop-tile{tile-sizes=2}))

// CHECK-LABEL: func.func public @main
// CHECK: math.tanh
// CHECK-NOT: math.tanh
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.tanh %x : tensor<8xf32>
  %1 = stablehlo.tanh %x : tensor<8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// CHECK-LABEL: // -----
// MIXED: linalg.generic
// MIXED-NOT: linalg.generic
// MIXED-NOT: chlo
func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = chlo.broadcast_add %x, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %1 = stablehlo.tanh %0 : tensor<8xf32>
  return %1 : tensor<8xf32>
}
