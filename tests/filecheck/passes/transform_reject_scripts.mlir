// RUN: not stablexla-opt %s --pass-pipeline="builtin.module(stablexla-transform)" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not stablexla-opt %s --pass-pipeline="builtin.module(stablexla-transform{script='%t.missing'})" 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not stablexla-opt %s --pass-pipeline="builtin.module(stablexla-transform{script='%s'})" 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not stablexla-opt %s --pass-pipeline="builtin.module(stablexla-transform{script='%S/../inputs/tile.transform' entry=other})" 2>&1 | FileCheck %s --check-prefix=ENTRY
// RUN: not stablexla-opt %s --pass-pipeline="builtin.module(stablexla-transform{script='%S/../inputs/tile.transform' entry=too_many})" 2>&1 | FileCheck %s --check-prefix=FAILED

// NONE: stablexla-transform needs a script
// NONE: try: stablexla-transform{script=schedule.mlir}
// MISSING: there is no schedule {{.*}}.missing
// OTHER: is no schedule: its module has not the attribute transform.with_named_sequence
// ENTRY: has no sequence @other; it has @__transform_main, @too_many
// FAILED: the schedule {{.*}}tile.transform failed
// FAILED-NEXT: error: too many tiles provided
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = tensor.empty() : tensor<16xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<16xf32>) outs(%0 : tensor<16xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<16xf32>
  return %1 : tensor<16xf32>
}
