// Each stage from the one before it, by the first line that the tool itself writes.
// RUN: stablexla-opt %s --stage=stablehlo | FileCheck %s --check-prefix=STABLEHLO
// RUN: stablexla-opt %s --stage=tensor | FileCheck %s --check-prefix=TENSOR
// RUN: stablexla-opt %s --stage=tensor | stablexla-opt - --stage=kernels | FileCheck %s --check-prefix=KERNELS
// RUN: stablexla-opt %s --stage=kernels | stablexla-opt - --stage=buffers | FileCheck %s --check-prefix=BUFFERS
// RUN: stablexla-opt %s --stage=buffers | stablexla-opt - --stage=llvm | FileCheck %s --check-prefix=LLVM
// RUN: not stablexla-opt %s --from-stage=llvm --stage=tensor 2>&1 | FileCheck %s --check-prefix=LATE

// STABLEHLO: // stage stablehlo: stablexla-opt {{.*}}stages.mlir --stage=stablehlo
// STABLEHLO: func.func public @main
// STABLEHLO-NOT: call
// STABLEHLO: stablehlo.exponential

// TENSOR: // stage tensor:
// TENSOR: func.func public @main(%{{.*}}: tensor<8x16xf32>) -> tensor<8x16xf32>
// TENSOR: linalg.generic
// TENSOR: math.exp
// TENSOR-NOT: stablehlo.

// KERNELS: // stage kernels: stablexla-opt {{.*}}stdin{{.*}} --stage=kernels
// KERNELS: func.func private @[[NAME:loop_0]]{{.*}}stablexla.kernel = "loop"
// KERNELS: math.exp
// KERNELS: func.func public @main
// KERNELS-NOT: linalg
// KERNELS: call @[[NAME]]

// BUFFERS: func.func private @loop_0_impl(%{{.*}}: memref<128xf32>, %{{.*}}: memref<128xf32>, %{{.*}}: index, %{{.*}}: index)
// BUFFERS: func.func public @main
// BUFFERS-SAME: memref<128xf32> {stablexla.role = "parameter"}
// BUFFERS-SAME: memref<128xf32> {stablexla.role = "result"}
// BUFFERS-SAME: stablexla.role = "arena"
// BUFFERS-NOT: tensor<

// LLVM: llvm.func internal @loop_0_impl
// LLVM: llvm.func @main({{.*}}stablexla.bytes = 512 : i64
// LLVM-NOT: memref

// LATE: stablexla-opt: the input is at stage 'llvm' already, which is after 'tensor'

module @stages {
  func.func public @main(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
    %0 = func.call @twice(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
  func.func private @twice(%x: tensor<8x16xf32>) -> tensor<8x16xf32> {
    %0 = stablehlo.exponential %x : tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
