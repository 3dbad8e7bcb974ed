// A schedule of the transform dialect: at the end, after a step, and as an element of a pipeline.
// RUN: stablexla-opt %s --stage=tensor --transform-script=%S/inputs/tile.transform | FileCheck %s
// RUN: stablexla-opt %s --stage=kernels --transform-script=%S/inputs/tile.transform:__transform_main --transform-at=tensor | FileCheck %s --check-prefix=KERNELS
// RUN: stablexla-opt %s --pass-pipeline="builtin.module(stablexla-lower-to-tensor,stablexla-transform{script='%S/inputs/tile.transform'},canonicalize)" | FileCheck %s
// What is wrong in it is told with its own line; also when the schedule cannot be applied.
// RUN: not stablexla-opt %s --stage=tensor --transform-script=%S/inputs/tile.transform:too_many 2>&1 | FileCheck %s --check-prefix=FAILED

// CHECK-LABEL: func.func
// CHECK: scf.for
// CHECK: linalg.generic
// CHECK-SAME: tensor<4xf32>

// KERNELS: func.func public @main
// KERNELS: scf.for
// KERNELS: call @general_0

// FAILED: error: cpu: step 3 'transform': the schedule {{.*}}tile.transform failed
// FAILED-NEXT: error: too many tiles provided
// FAILED-NEXT: from {{.*}}tile.transform:{{10|11}}:  %tiled, %outer:2 = transform.structured.tile_using_for

func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = stablehlo.tanh %x : tensor<16xf32>
  return %0 : tensor<16xf32>
}
