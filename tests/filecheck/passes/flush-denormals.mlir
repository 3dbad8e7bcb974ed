// RUN: stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-flush-denormals)' | FileCheck %s

// Every function of a GPU module gets the attribute; main, which runs on the host, does not.
// CHECK: gpu.module @kernels
// CHECK: llvm.func @first({{.*}}denormal_fp_math_f32 = "preserve-sign"
// CHECK: llvm.func @second({{.*}}denormal_fp_math_f32 = "preserve-sign"
// CHECK: llvm.func @main(
// CHECK-NOT: denormal
gpu.module @kernels {
  llvm.func @first(%x: f32) {
    llvm.return
  }
  llvm.func @second() {
    llvm.return
  }
}
llvm.func @main() {
  llvm.return
}
