// What the passes of both MLIRs and those in Python do, with their options.
// RUN: stablexla-opt "--show-passes=^(canonicalize|stablexla-emit-kernels|one-shot-bufferize|stablehlo-wrap-in-composite)$" | FileCheck %s

// CHECK: // 1 pass written in Python
// CHECK-NEXT: stablexla-emit-kernels
// CHECK: writes each kernel's loops on flat buffers
// CHECK: vector-bits=int, 0
// CHECK: // 1 pass of StableHLO's MLIR
// CHECK-NEXT: stablehlo-wrap-in-composite
// CHECK-NEXT: {{.*}}[before stablexla-lower-to-tensor]
// CHECK-NEXT: op-names
// CHECK: // 1 pass of both MLIRs
// CHECK-NEXT: canonicalize
// CHECK: region-simplify=disabled|normal|aggressive
// CHECK: // 1 pass of upstream's MLIR
// CHECK-NEXT: one-shot-bufferize
// CHECK: bufferize-function-boundaries
