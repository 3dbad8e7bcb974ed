// stablexla-translate as a shell calls it: between forms through pipes, to old versions, and what is in a file.

// RUN: stablexla-translate %s --to=artifact --target-version=minimum | stablexla-translate - | FileCheck %s --check-prefix=TEXT
// TEXT: module @halve
// TEXT: func.func {{.*}}@main(%[[X:.*]]: tensor<4xf32>{{.*}}) -> tensor<4xf32>
// TEXT: stablehlo.cosine %[[X]]

// RUN: stablexla-translate %s --to=hlo-text | FileCheck %s --check-prefix=HLO
// HLO: HloModule halve
// HLO: ROOT {{.*}} = f32[4]{0} cosine(

// RUN: stablexla-translate %s --to=artifact --target-version=1.3.0 -o %t.stablehlo
// RUN: stablexla-translate --info %t.stablehlo | FileCheck %s --check-prefix=INFO
// INFO: form {{ *}}StableHLO portable artifact
// INFO: StableHLO {{ *}}1.3.0 (this build reads 0.9.0 to {{.*}})
// INFO: public {{ *}}@main {{ *}}(tensor<4xf32>) -> tensor<4xf32>
// INFO: stablehlo.cosine {{ *}}1

// RUN: stablexla-translate %s --to=hlo-text | stablexla-run - --input zeros --print | FileCheck %s --check-prefix=ONES
// ONES: [1. 1. 1. 1.]

// RUN: not stablexla-translate %s --to=text --target-version=1.3.0 2>&1 | FileCheck %s --check-prefix=USAGE
// USAGE: stablexla-translate: --target-version is for artifacts, not for MLIR text

module @halve {
  func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.cosine %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
