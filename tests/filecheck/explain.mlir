// What a user reads of a program: its operations' fates, the kernels, where arrays lie; a page; a profile and a trace.

// RUN: stablexla-run %s --explain --all --profile=3 --trace=%t.json | FileCheck %s
// RUN: FileCheck %s --check-prefix=TRACE --input-file=%t.json
// RUN: stablexla-run %s --explain=%t.html | FileCheck %s --allow-empty --check-prefix=NOTHING
// RUN: FileCheck %s --check-prefix=PAGE --input-file=%t.html

// CHECK: operations
// CHECK: 0 stablehlo.exponential {{.*}}explain.mlir:[[#]]:8 computed by loop_0
// CHECK: 1 stablehlo.negate {{.*}}computed by loop_0
// CHECK: loop_0 loop emitted 1 {{.*}}1.0 KiB 1.0 KiB 512 0-1
// CHECK: 0 loop_0 parameter 0 result 0
// CHECK: main: 3 runs
// CHECK: loop_0 loop {{.*}}0-1
// CHECK: outside
// TRACE: "name": "loop_0", "cat": "loop"
// NOTHING-NOT: {{.}}
// PAGE: <!doctype html>
// PAGE: stablehlo.exponential

func.func @main(%x: tensor<256xf32>) -> tensor<256xf32> {
  %0 = stablehlo.exponential %x : tensor<256xf32>
  %1 = stablehlo.negate %0 : tensor<256xf32>
  return %1 : tensor<256xf32>
}
