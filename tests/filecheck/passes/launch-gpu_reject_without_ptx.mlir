// RUN: not stablexla-opt %s --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-launch-gpu)' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}the pipeline left no PTX
func.func @main() {
  %zero = arith.constant 0 : index
  return
}
