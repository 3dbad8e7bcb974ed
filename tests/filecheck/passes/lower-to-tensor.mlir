// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-lower-to-tensor)' | FileCheck %s
// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-lower-to-tensor{whole-sorts=true})' | FileCheck %s --check-prefix=WHOLE

// Element by element: a loop nest without dimensions of size 1. Numbers of rank 0 are plain scalars. Integers have no
// sign any more; the operations on them know it.
// CHECK-LABEL: module @elements
// CHECK: func.func public @main(%[[X:.*]]: tensor<8x1xi32>, %[[N:.*]]: tensor<i32>)
// CHECK: %[[SCALAR:.*]] = tensor.extract %[[N]][] : tensor<i32>
// CHECK: tensor.collapse_shape %[[X]] {{.*}} : tensor<8x1xi32> into tensor<8xi32>
// CHECK: %[[LOOPS:.*]] = linalg.generic {{.*}}iterator_types = ["parallel"]}
// CHECK: arith.divui
// CHECK: tensor.expand_shape %[[LOOPS]]
// CHECK: arith.divui %[[SCALAR]]
// CHECK-NOT: stablehlo
module @elements {
  func.func public @main(%x: tensor<8x1xui32>, %n: tensor<ui32>) -> (tensor<8x1xui32>, tensor<ui32>) {
    %0 = stablehlo.divide %x, %x : tensor<8x1xui32>
    %1 = stablehlo.divide %n, %n : tensor<ui32>
    return %0, %1 : tensor<8x1xui32>, tensor<ui32>
  }
}

// -----

// What computes in a small float computes in f32, and rounds each result.
// CHECK-LABEL: module @sum
// CHECK: linalg.fill
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]}
// CHECK: %[[SUM:.*]] = arith.addf %{{.*}}, %{{.*}} : f32
// CHECK-NEXT: %[[SMALL:.*]] = arith.truncf %[[SUM]] : f32 to bf16
// CHECK-NEXT: linalg.yield %[[SMALL]]
module @sum {
  func.func public @main(%x: tensor<4x8xbf16>, %i: tensor<bf16>) -> tensor<4xbf16> {
    %0 = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions = [1] : (tensor<4x8xbf16>, tensor<bf16>) -> tensor<4xbf16>
    return %0 : tensor<4xbf16>
  }
}

// -----

// An operation that is more than one loop nest is calls of functions that say on tensors what it means.
// CHECK-LABEL: module @sorted
// CHECK: func.func private @radix_count_0({{.*}}stablexla.kernel = "radix_count"
// CHECK: func.func public @main
// CHECK: call @radix_count_0(%arg0
// CHECK-NOT: stablehlo
// WHOLE-LABEL: module @sorted
// WHOLE-NOT: radix
// WHOLE: func.func public @main
// WHOLE-NEXT: call @sort_rows_0(%arg0) : (tensor<40000xi32>) -> tensor<40000xi32>
// WHOLE-NEXT: return
module @sorted {
  func.func public @main(%x: tensor<40000xi32>) -> tensor<40000xi32> {
    %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = false}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %1 = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }) : (tensor<40000xi32>) -> tensor<40000xi32>
    return %0 : tensor<40000xi32>
  }
}

// -----

// A loop's state of rank 0 never touches memory.
// CHECK-LABEL: module @loop
// CHECK: %[[N:.*]] = tensor.extract %arg0[]
// CHECK-NEXT: scf.while (%{{.*}} = %[[N]]) : (i32) -> i32
// CHECK: arith.cmpi slt
// CHECK: arith.addi
// CHECK: tensor.from_elements
module @loop {
  func.func public @main(%n: tensor<i32>) -> tensor<i32> {
    %0 = stablehlo.while(%i = %n) : tensor<i32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %n : tensor<i32>
      stablehlo.return %j : tensor<i32>
    }
    return %0 : tensor<i32>
  }
}
