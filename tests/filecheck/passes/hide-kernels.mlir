// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-hide-kernels)' | FileCheck %s

// A function with a body becomes internal, and is not inlined; main and what is only declared stay as they are.
// CHECK: llvm.func @outside(i64){{$}}
// CHECK: llvm.func internal @kernel(%{{.*}}: i64) attributes {no_inline}
// CHECK: llvm.func @main(%{{.*}}: i64) {
llvm.func @outside(i64)
llvm.func @kernel(%n: i64) {
  llvm.call @outside(%n) : (i64) -> ()
  llvm.return
}
llvm.func @main(%n: i64) {
  llvm.call @kernel(%n) : (i64) -> ()
  llvm.return
}
