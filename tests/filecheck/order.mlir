// RUN: stablexla-opt %s -split-input-file --stage=tensor | FileCheck %s

// Short rows of small elements by a plain comparator: how many elements come before each is counted, and each is put there.
// CHECK: linalg.generic {{.*}} ["parallel", "parallel", "reduction"]
// CHECK: arith.cmpi eq
// CHECK: arith.cmpi ult
// CHECK: arith.addi
// CHECK: call @sort_0(%{{.*}}, %{{.*}}) : (tensor<80xi16>, tensor<80xi32>) -> tensor<80xi16>
func.func public @main(%x: tensor<8x10xi16>) -> tensor<8x10xi16> {
  %0 = "stablehlo.sort"(%x) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<i16>, %b: tensor<i16>):
    %1 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i16>, tensor<i16>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<8x10xi16>) -> tensor<8x10xi16>
  return %0 : tensor<8x10xi16>
}

// -----

// One long row by a plain comparator: for each digit of the keys the same three kernels.
// CHECK-LABEL: // -----
// CHECK: func.func private @radix_count_0(%{{.*}}: tensor<40000xi32>, %{{.*}}: i32) -> tensor<8192xi32>
// CHECK-SAME: stablexla.independent
// CHECK: func.func public @main
// CHECK: %[[SHIFT:.*]] = arith.constant 11 : i32
// CHECK: call @radix_count_0(%arg0,
// CHECK: %[[PLACES:.*]] = call @radix_places_0
// CHECK: %[[ONCE:.*]] = call @radix_move_0(%arg0, %[[PLACES]],
// CHECK: call @radix_count_0(%[[ONCE]], %[[SHIFT]])
// CHECK: call @radix_count_0
// CHECK: return
func.func public @main(%x: tensor<40000xi32>) -> tensor<40000xi32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.compare GT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<40000xi32>) -> tensor<40000xi32>
  return %0 : tensor<40000xi32>
}

// -----

// Any other comparator: blocks are sorted by merging, then neighbouring runs are merged, cut into blocks.
// CHECK-LABEL: // -----
// CHECK: func.func private @sort_0
// CHECK: arith.cmpi sle
// CHECK: func.func private @sort_cuts_0
// CHECK: scf.while
// CHECK: func.func private @sort_merge_0
// CHECK-SAME: stablexla.independent
// CHECK: func.func public @main
// CHECK: %[[RUNS:.*]] = call @sort_0(%arg0)
// CHECK: %[[CUTS:.*]] = call @sort_cuts_0(%[[RUNS]],
// CHECK: call @sort_merge_0(%[[RUNS]], %[[CUTS]],
func.func public @main(%x: tensor<5000xi32>) -> tensor<5000xi32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %1 = stablehlo.compare LE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<5000xi32>) -> tensor<5000xi32>
  return %0 : tensor<5000xi32>
}

// -----

// The dimension is brought last, and back again.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK: linalg.generic {{.*}} attrs = {stablexla.transpose}
// CHECK: call @sort_0
// CHECK: linalg.generic {{.*}} attrs = {stablexla.transpose}
func.func public @main(%x: tensor<100x7xui8>) -> tensor<100x7xui8> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<ui8>, %b: tensor<ui8>):
    %1 = stablehlo.compare LT, %a, %b : (tensor<ui8>, tensor<ui8>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  }) : (tensor<100x7xui8>) -> tensor<100x7xui8>
  return %0 : tensor<100x7xui8>
}

// -----

// CHLO's operation is kept whole.
// CHECK-LABEL: // -----
// CHECK: call @top_k_0(%{{.*}}) : (tensor<2000xf32>) -> (tensor<6xf32>, tensor<6xi32>, tensor<6xi32>, tensor<6xi32>)
func.func public @main(%x: tensor<2x1000xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
  %0:2 = chlo.top_k(%x, k = 3) : tensor<2x1000xf32> -> (tensor<2x3xf32>, tensor<2x3xi32>)
  return %0#0, %0#1 : tensor<2x3xf32>, tensor<2x3xi32>
}
