// What a conversion between element types is written as, and that none of a small float is left behind.
// RUN: stablexla-opt %s --stage=tensor | FileCheck %s --check-prefix=TENSOR
// RUN: stablexla-opt %s --stage=llvm | FileCheck %s --check-prefix=LLVM

// TENSOR-LABEL: func.func public @main

// f32 to s8: below the lowest, above the highest, NaN, and only then a conversion that could not hold them.
// TENSOR: arith.cmpf ogt
// TENSOR: arith.cmpf olt
// TENSOR: arith.cmpf uno
// TENSOR: arith.fptosi %{{.*}} : f32 to i32
// TENSOR: arith.trunci %{{.*}} : i32 to i8

// f64 to bf16 is one rounding.
// TENSOR: arith.truncf %{{.*}} : f64 to bf16

// Between two types of which neither holds the other by f32.
// TENSOR: arith.extf %{{.*}} : f8E4M3FN to f32
// TENSOR: arith.truncf %{{.*}} : f32 to bf16

// More bits than the type has change nothing.
// TENSOR-NOT: arith.shrui
// TENSOR: return

// LLVM-NOT: {{llvm.(fpext|fptrunc).*(bf16|i8)}}
// LLVM: llvm.func @main
// LLVM-NOT: {{llvm.(fpext|fptrunc).*(bf16|i8)}}

func.func public @main(%x: tensor<20xf32>, %y: tensor<20xf64>, %z: tensor<20xf8E4M3FN>, %w: tensor<20xf16>)
    -> (tensor<20xi8>, tensor<20xbf16>, tensor<20xbf16>, tensor<20xf16>) {
  %0 = stablehlo.convert %x : (tensor<20xf32>) -> tensor<20xi8>
  %1 = stablehlo.convert %y : (tensor<20xf64>) -> tensor<20xbf16>
  %2 = stablehlo.convert %z : (tensor<20xf8E4M3FN>) -> tensor<20xbf16>
  %3 = stablehlo.reduce_precision %w, format = e8m23 : tensor<20xf16>
  return %0, %1, %2, %3 : tensor<20xi8>, tensor<20xbf16>, tensor<20xbf16>, tensor<20xf16>
}
