// RUN: stablexla-opt %s -split-input-file --stage=kernels | FileCheck %s

// Softmax is one kernel: two reductions over rows and the element-wise operations between and after them.
// CHECK: func.func private @row_0(%[[X:.*]]: tensor<8x128xf32>) -> tensor<8x128xf32> {{.*}}stablexla.kernel = "row"
// CHECK: arith.maximumf
// CHECK: arith.subf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: arith.divf
// CHECK: func.func public @main
// CHECK-NEXT: %[[R:.*]] = call @row_0(%arg0)
// CHECK-NEXT: return %[[R]]
func.func public @main(%x: tensor<8x128xf32>) -> tensor<8x128xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
    : (tensor<8x128xf32>, tensor<f32>) -> tensor<8xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x128xf32>
  %d = stablehlo.subtract %x, %mb : tensor<8x128xf32>
  %e = stablehlo.exponential %d : tensor<8x128xf32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
    : (tensor<8x128xf32>, tensor<f32>) -> tensor<8xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<8xf32>) -> tensor<8x128xf32>
  %r = stablehlo.divide %e, %sb : tensor<8x128xf32>
  return %r : tensor<8x128xf32>
}

// -----

// A contraction takes in the element-wise operations on its result.
// CHECK-LABEL: // -----
// CHECK: func.func private @contraction_0(
// CHECK: iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.addf
// CHECK: arith.maximumf
// CHECK: func.func public @main
// CHECK-NEXT: %[[R:.*]] = call @contraction_0(%arg0, %arg1, %arg2)
// CHECK-NEXT: return %[[R]]
func.func public @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %b: tensor<32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot %x, %w : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  %c = stablehlo.constant dense<0.0> : tensor<8x32xf32>
  %3 = stablehlo.maximum %2, %c : tensor<8x32xf32>
  return %3 : tensor<8x32xf32>
}

// -----

// ... unless somebody else reads what it made.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NEXT: %[[DOT:.*]] = call @contraction_0(%arg0, %arg1)
// CHECK-NEXT: %[[R:.*]] = call @loop_0(%[[DOT]])
// CHECK-NEXT: return %[[DOT]], %[[R]]
func.func public @main(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> (tensor<8x32xf32>, tensor<8x32xf32>) {
  %0 = stablehlo.dot %x, %w : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.negate %0 : tensor<8x32xf32>
  return %0, %1 : tensor<8x32xf32>, tensor<8x32xf32>
}

// -----

// Equal kernels are shared, whatever their operands are called.
// CHECK-LABEL: // -----
// CHECK-COUNT-1: func.func private
// CHECK-NOT: func.func private
// CHECK: func.func public @main
// CHECK: call @loop_0(%arg0)
// CHECK: call @loop_0(%arg1)
func.func public @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %0 = stablehlo.exponential %x : tensor<8xf32>
  %1 = stablehlo.exponential %y : tensor<8xf32>
  return %0, %1 : tensor<8xf32>, tensor<8xf32>
}

// -----

// Operands that were computed apart are computed together with what joins them.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NEXT: %[[R:.*]] = call @loop_0({{.*}}) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
// CHECK-NEXT: return %[[R]]
func.func public @main(%x: tensor<8xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.exponential %x : tensor<8xf32>
  %1 = stablehlo.negate %y : tensor<8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// What costs nothing to make is made again by each kernel that reads it, not stored.
// CHECK-LABEL: // -----
// CHECK: func.func private @loop_0(%{{.*}}: tensor<8x4xi32>) -> tensor<8x4xi32>
// CHECK: linalg.index 0
// CHECK: arith.addi
// CHECK: func.func private @reduce_0(%{{.*}}: tensor<8x4xi32>) -> tensor<4xi32>
// CHECK: linalg.index 0
// CHECK: arith.muli
// CHECK: func.func public @main
// CHECK: call @{{.*}}(%arg0) : (tensor<8x4xi32>) -> tensor<8x4xi32>
// CHECK: call @{{.*}}(%arg1) : (tensor<8x4xi32>) -> tensor<4xi32>
// CHECK-NEXT: return
func.func public @main(%x: tensor<8x4xi32>, %y: tensor<8x4xi32>) -> (tensor<8x4xi32>, tensor<4xi32>) {
  %i = stablehlo.iota dim = 0 : tensor<8x4xi32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.add %x, %i : tensor<8x4xi32>
  %1 = stablehlo.multiply %y, %i : tensor<8x4xi32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<8x4xi32>, tensor<i32>) -> tensor<4xi32>
  return %0, %2 : tensor<8x4xi32>, tensor<4xi32>
}

// -----

// The sum cannot be computed with the exponential that it reads: the transpose lies between them.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK-NEXT: %[[E:.*]] = call @loop_0(%arg0)
// CHECK-NEXT: %[[T:.*]] = call @transpose_0(%[[E]])
// CHECK-NEXT: call @loop_1(%[[E]], %[[T]])
func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = stablehlo.exponential %x : tensor<8x8xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x8xf32>
  return %2 : tensor<8x8xf32>
}

// -----

// The parts of a concatenation are written by one kernel; an update is one that begins with the operand's elements.
// CHECK-LABEL: // -----
// CHECK: func.func private @general_0(%{{.*}}: tensor<8xf32>, %{{.*}}: tensor<4xf32>) -> tensor<12xf32>
// CHECK-COUNT-2: tensor.insert_slice
// CHECK: func.func private @general_1(%{{.*}}: tensor<4xf32>, %{{.*}}: tensor<8xf32>, %{{.*}}: index) -> tensor<8xf32>
// CHECK: tensor.insert_slice
// CHECK: func.func public @main
// CHECK-NOT: tensor.insert_slice
func.func public @main(%x: tensor<8xf32>, %y: tensor<4xf32>, %i: tensor<i32>) -> (tensor<12xf32>, tensor<8xf32>) {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<8xf32>, tensor<4xf32>) -> tensor<12xf32>
  %1 = stablehlo.dynamic_update_slice %x, %y, %i : (tensor<8xf32>, tensor<4xf32>, tensor<i32>) -> tensor<8xf32>
  return %0, %1 : tensor<12xf32>, tensor<8xf32>
}

// -----

// The canonicaliser takes away results of a loop that nobody reads. What the condition needs is carried on.
// CHECK-LABEL: // -----
// CHECK: func.func public @main
// CHECK: %[[LOOP:.*]]:2 = scf.while (%[[I:.*]] = %{{.*}}, %[[V:.*]] = %arg0) : (i32, tensor<4xi32>) -> (i32, tensor<4xi32>)
// CHECK: call @row_0(%[[V]]
// CHECK: scf.condition(%{{.*}}) %[[I]], %[[V]] : i32, tensor<4xi32>
// CHECK: ^bb0(%{{.*}}: i32, %{{.*}}: tensor<4xi32>):
// CHECK: scf.yield %{{.*}}, %{{.*}} : i32, tensor<4xi32>
// CHECK: tensor.from_elements %[[LOOP]]#0
func.func public @main(%p: tensor<4xi32>) -> tensor<i32> {
  %c0 = stablehlo.constant dense<0> : tensor<i32>
  %c1 = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %c0, %x = %p) : tensor<i32>, tensor<4xi32>
  cond {
    %s = stablehlo.reduce(%x init: %c0) applies stablehlo.add across dimensions = [0]
      : (tensor<4xi32>, tensor<i32>) -> tensor<i32>
    %g = stablehlo.compare LT, %s, %c1 : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %g : tensor<i1>
  } do {
    %n = stablehlo.add %i, %c1 : tensor<i32>
    %b = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<i32>) -> tensor<4xi32>
    stablehlo.return %n, %b : tensor<i32>, tensor<4xi32>
  }
  return %r#0 : tensor<i32>
}
