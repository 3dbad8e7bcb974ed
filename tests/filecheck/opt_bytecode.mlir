// Bytecode is written and read, of either MLIR: which one it is for is seen by its operations.
// RUN: stablexla-opt %s --emit-bytecode | stablexla-opt - --stage=tensor --emit-bytecode -o %t.mlirbc
// RUN: stablexla-opt %t.mlirbc --from-stage=tensor --stage=kernels | FileCheck %s
// RUN: stablexla-opt %t.mlirbc -canonicalize | FileCheck %s --check-prefix=TENSOR

// CHECK: // stage kernels:
// CHECK: stablexla.kernel = "loop"
// TENSOR: linalg.generic

module @named {
  func.func public @main(%x: tensor<16xf32>) -> tensor<16xf32> {
    %0 = stablehlo.tanh %x : tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}
