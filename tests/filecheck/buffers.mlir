// RUN: stablexla-opt %s -split-input-file --stage=buffers --num-threads=1 | FileCheck %s

// Temporaries that do not live at the same time share a place in the arena; the last array is made for the caller.
// CHECK: func.func public @main(%[[X:.*]]: memref<32xf32> {stablexla.role = "parameter"}
// CHECK-SAME: %[[OUT:.*]]: memref<32xf32> {stablexla.role = "result"}
// CHECK-SAME: %[[ARENA:.*]]: memref<256xi8> {stablexla.role = "arena"})
// CHECK: %[[ZERO:.*]] = arith.constant 0 : index
// CHECK: %[[A:.*]] = memref.view %[[ARENA]][%[[ZERO]]]
// CHECK: %[[NEXT:.*]] = arith.constant 128 : index
// CHECK: %[[B:.*]] = memref.view %[[ARENA]][%[[NEXT]]]
// CHECK-NOT: memref.view
// CHECK: call @{{.*}}(%[[X]], %[[A]],
// CHECK: call @{{.*}}(%[[A]], %[[B]],
// CHECK: call @{{.*}}(%[[B]], %[[A]],
// CHECK: call @{{.*}}(%[[A]], %[[OUT]],
// CHECK-NOT: memref.copy
func.func public @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.reshape %0 : (tensor<4x8xf32>) -> tensor<2x16xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<2x16xf32>) -> tensor<16x2xf32>
  %3 = stablehlo.reshape %2 : (tensor<16x2xf32>) -> tensor<4x8xf32>
  %4 = stablehlo.transpose %3, dims = [1, 0] : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %5 = stablehlo.reshape %4 : (tensor<8x4xf32>) -> tensor<2x16xf32>
  %6 = stablehlo.transpose %5, dims = [1, 0] : (tensor<2x16xf32>) -> tensor<16x2xf32>
  %7 = stablehlo.reshape %6 : (tensor<16x2xf32>) -> tensor<8x4xf32>
  return %7 : tensor<8x4xf32>
}

// -----

// A carried array is copied once, before the loop, and every turn overwrites it. Scalars are carried as values.
// CHECK-LABEL: // -----
// CHECK: func.func public @main(%[[X:[a-z0-9]*]]: memref<4xf32>
// CHECK-SAME: %[[OUT:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "result"}
// CHECK-SAME: memref<0xi8> {stablexla.role = "arena"})
// CHECK: memref.copy %[[X]], %[[OUT]]
// CHECK: scf.while (%{{.*}} = %{{.*}}) : (i32) -> i32
// CHECK: func.call @{{.*}}(%[[OUT]], %[[OUT]],
// CHECK-NOT: memref.copy
// CHECK: scf.yield %{{.*}} : i32
func.func public @main(%x: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c0, %v = %x) : tensor<i32>, tensor<4xf32>
  cond {
    %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    %w = stablehlo.exponential %v : tensor<4xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<4xf32>
  }
  return %r#1 : tensor<4xf32>
}

// -----

// An update in a loop writes its block only.
// CHECK-LABEL: // -----
// CHECK: func.func private @[[UPDATE:.*]](%{{.*}}: memref<1xf32>
// CHECK: memref.store
// CHECK-NOT: memref.store
// CHECK: return
// CHECK: func.func public @main(%[[X:[a-z0-9]*]]: memref<8xf32>
// CHECK-SAME: %[[OUT:[a-z0-9]*]]: memref<8xf32> {stablexla.role = "result"}
// CHECK: memref.copy %[[X]], %[[OUT]]
// CHECK: scf.while
// CHECK: func.call @[[UPDATE]](%{{.*}}, %[[OUT]], %{{.*}}, %[[OUT]],
// CHECK-NOT: memref.copy
// CHECK: return
func.func public @main(%x: tensor<8xf32>, %n: tensor<i32>, %u: tensor<1xf32>) -> tensor<8xf32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c0, %v = %x) : tensor<i32>, tensor<8xf32>
  cond {
    %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    %w = stablehlo.dynamic_update_slice %v, %u, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
    stablehlo.return %j, %w : tensor<i32>, tensor<8xf32>
  }
  return %r#1 : tensor<8xf32>
}

// -----

// Two carried arrays that change places do so by their addresses; only after the loop may they have to be moved.
// CHECK-LABEL: // -----
// CHECK: func.func public @main(
// CHECK-SAME: %[[A:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "result"}, %[[B:[a-z0-9]*]]: memref<4xf32> {{.*}} memref<64xi8>
// CHECK: %[[T:.*]] = memref.view {{.*}} to memref<4xf32>
// CHECK: scf.while
// CHECK: ^bb0(%{{.*}}: i32, %[[V:.*]]: memref<16xi8>, %[[W:.*]]: memref<16xi8>):
// CHECK-NOT: memref.copy
// CHECK: scf.yield %{{.*}}, %[[W]], %[[V]]
// CHECK: memref.extract_aligned_pointer_as_index
// CHECK: scf.if
// CHECK-NEXT: memref.copy %[[A]], %[[T]]
// CHECK-NEXT: memref.copy %[[B]], %[[A]]
// CHECK-NEXT: memref.copy %[[T]], %[[B]]
func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: tensor<i32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:3 = stablehlo.while(%i = %c0, %v = %x, %w = %y) : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  cond {
    %g = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %j = stablehlo.add %i, %c1 : tensor<i32>
    stablehlo.return %j, %w, %v : tensor<i32>, tensor<4xf32>, tensor<4xf32>
  }
  return %r#1, %r#2 : tensor<4xf32>, tensor<4xf32>
}

// -----

// Every result is an array of its own: parameters, constants and results that are returned again are copied.
// CHECK-LABEL: // -----
// CHECK: func.func public @main(%[[X:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "parameter"}
// CHECK-SAME: {stablexla.role = "constant", stablexla.value = dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>}
// CHECK-SAME: %[[R0:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "result"}
// CHECK-SAME: %[[R1:[a-z0-9]*]]: memref<2xf32> {stablexla.role = "result"}
// CHECK-SAME: %[[R2:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "result"}
// CHECK-SAME: %[[R3:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "result"}
// CHECK: %[[C:.*]] = memref.view {{.*}} to memref<2xf32>
// CHECK: call @{{.*}}(%[[X]], %[[R2]],
// CHECK-NEXT: memref.copy %[[X]], %[[R0]]
// CHECK-NEXT: memref.copy %[[C]], %[[R1]]
// CHECK-NEXT: memref.copy %[[R2]], %[[R3]]
func.func public @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = stablehlo.exponential %x : tensor<4xf32>
  return %x, %c, %0, %0 : tensor<4xf32>, tensor<2xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Both branches leave their array where the result is.
// CHECK-LABEL: // -----
// CHECK: func.func public @main({{.*}}%[[X:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "parameter"}
// CHECK-SAME: %[[OUT:[a-z0-9]*]]: memref<4xf32> {stablexla.role = "result"}
// CHECK: scf.if
// CHECK: func.call @{{.*}}(%[[X]], %[[OUT]],
// CHECK-NOT: memref.copy
// CHECK: } else {
// CHECK-NEXT: memref.copy %[[X]], %[[OUT]]
// CHECK-NEXT: }
// CHECK-NEXT: return
func.func public @main(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %a = stablehlo.exponential %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    stablehlo.return %x : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
