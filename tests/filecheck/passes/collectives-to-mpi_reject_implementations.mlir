// RUN: not stablexla-opt %s --pass-pipeline='builtin.module(stablexla-collectives-to-mpi{implementation=Other})' 2>&1 | FileCheck %s

// CHECK: error: {{.*}}there is no implementation 'Other'
// CHECK-NEXT: try: one of {{.*}}MPICH
func.func public @main(%x: memref<4xf32>) {
  %zero = arith.constant 0 : index
  return
}
