// RUN: not stablexla-opt %s -split-input-file --stage=tensor 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERROR --input-file=%t

// One operation is one loop nest; its body is the arithmetic on one element.
// CHECK: #[[ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK: func.func public @main(%[[X:.*]]: tensor<4x5xf32>, %[[Y:.*]]: tensor<4x5xf32>) -> tensor<4x5xf32>
// CHECK: linalg.generic
// CHECK-SAME: indexing_maps = [#[[ID]], #[[ID]], #[[ID]]], iterator_types = ["parallel", "parallel"]
// CHECK-SAME: ins(%[[X]], %[[Y]] :
// CHECK-NEXT: ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[A]], %[[B]] : f32
// CHECK-NEXT: linalg.yield %[[SUM]] : f32
func.func public @main(%x: tensor<4x5xf32>, %y: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %0 = stablehlo.add %x, %y : tensor<4x5xf32>
  return %0 : tensor<4x5xf32>
}

// -----

// Small floats are computed in f32.
// CHECK-LABEL: // -----
// CHECK: ^bb0(%{{.*}}: bf16, %{{.*}}: bf16, %{{.*}}: bf16):
// CHECK-COUNT-2: arith.extf {{.*}} : bf16 to f32
// CHECK: arith.mulf {{.*}} : f32
// CHECK: arith.truncf {{.*}} : f32 to bf16
func.func public @main(%x: tensor<4xbf16>, %y: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = stablehlo.multiply %x, %y : tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----

// Rank-0 tensors are scalars: no loop, no memory.
// CHECK-LABEL: // -----
// CHECK-NOT: linalg
// CHECK: %[[A:.*]] = tensor.extract
// CHECK: %[[B:.*]] = tensor.extract
// CHECK: %[[SUM:.*]] = arith.addi %[[A]], %[[B]] : i32
// CHECK: %[[TWICE:.*]] = arith.addi %[[SUM]], %[[SUM]] : i32
// CHECK: tensor.from_elements %[[TWICE]]
func.func public @main(%x: tensor<i32>, %y: tensor<i32>) -> tensor<i32> {
  %0 = stablehlo.add %x, %y : tensor<i32>
  %1 = stablehlo.add %0, %0 : tensor<i32>
  return %1 : tensor<i32>
}

// -----

// Nothing can trap: the divisor is 1 where it is 0 and where the quotient does not fit.
// CHECK-LABEL: // -----
// CHECK-DAG: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-DAG: %[[ONES:.*]] = arith.constant -1 : i32
// CHECK: %[[ZERO:.*]] = arith.cmpi eq, %[[Y:.*]], %{{.*}} : i32
// CHECK: %[[BAD:.*]] = arith.ori %[[ZERO]],
// CHECK: %[[SAFE:.*]] = arith.select %[[BAD]], %[[ONE]], %[[Y]]
// CHECK: %[[Q:.*]] = arith.divsi %{{.*}}, %[[SAFE]]
// CHECK: arith.select %[[ZERO]], %[[ONES]], %[[Q]]
func.func public @main(%x: tensor<4xi32>, %y: tensor<4xi32>) -> tensor<4xi32> {
  %0 = stablehlo.divide %x, %y : tensor<4xi32>
  return %0 : tensor<4xi32>
}

// -----

// pred is a byte in memory and a bit in arithmetic; a scalar that chooses for all elements is read once.
// CHECK-LABEL: // -----
// CHECK: @main(%[[P:.*]]: tensor<i8>, %[[Q:.*]]: tensor<4xi8>,
// CHECK: %[[BYTE:.*]] = tensor.extract %[[P]]
// CHECK: %[[BIT:.*]] = arith.cmpi ne, %[[BYTE]],
// CHECK: linalg.generic {{.*}} ins(%[[BIT]], {{.*}} : i1, tensor<4xf32>, tensor<4xf32>)
// CHECK: linalg.generic {{.*}} ins(%[[Q]],
// CHECK-NEXT: ^bb0(%[[ELEMENT:.*]]: i8,
// CHECK-NEXT: %[[C:.*]] = arith.cmpi ne, %[[ELEMENT]],
// CHECK-NEXT: arith.select %[[C]],
func.func public @main(
    %p: tensor<i1>, %q: tensor<4xi1>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.select %p, %x, %y : tensor<i1>, tensor<4xf32>
  %1 = stablehlo.select %q, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// NE holds for NaN; the total order compares the bits as integers.
// CHECK-LABEL: // -----
// CHECK: %[[NE:.*]] = arith.cmpf une,
// CHECK-NEXT: arith.extui %[[NE]] : i1 to i8
// CHECK: arith.bitcast {{.*}} : f32 to i32
// CHECK: arith.cmpi slt, {{.*}} : i32
func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xi1>, tensor<4xi1>) {
  %0 = stablehlo.compare NE, %x, %y, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %1 = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  return %0, %1 : tensor<4xi1>, tensor<4xi1>
}

// -----

// Integers are signless here: the sign is in the operation.
// CHECK-LABEL: // -----
// CHECK: linalg.generic {{.*}} : i8, tensor<4xi8>, i8)
// CHECK: arith.maxui
// CHECK: arith.minui
func.func public @main(%x: tensor<4xui8>, %l: tensor<ui8>, %h: tensor<ui8>) -> tensor<4xui8> {
  %0 = stablehlo.clamp %l, %x, %h : (tensor<ui8>, tensor<4xui8>, tensor<ui8>) -> tensor<4xui8>
  return %0 : tensor<4xui8>
}

// -----

// Four bits are sign-extended when they are read, and are alone in their byte when they are written.
// CHECK-LABEL: // -----
// CHECK-DAG: %[[FOUR:.*]] = arith.constant 4 : i8
// CHECK-DAG: %[[MASK:.*]] = arith.constant 15 : i8
// CHECK: %[[UP:.*]] = arith.shli %{{.*}}, %[[FOUR]] : i8
// CHECK-NEXT: arith.shrsi %[[UP]], %[[FOUR]]
// CHECK: arith.addi
// CHECK: arith.andi %{{.*}}, %[[MASK]] : i8
func.func public @main(%x: tensor<4xi4>) -> tensor<4xi4> {
  %0 = stablehlo.add %x, %x : tensor<4xi4>
  return %0 : tensor<4xi4>
}

// -----

// Repeated operands and constants are not written to memory: their readers look through them.
// CHECK-LABEL: // -----
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[COLUMN:.*]] = affine_map<(d0, d1) -> (d1)>
// CHECK-DAG: #[[NONE:.*]] = affine_map<(d0, d1) -> ()>
// CHECK: @main(%[[X:.*]]: tensor<4xf32>,
// CHECK: %[[TWO:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: linalg.generic {indexing_maps = [#[[ROW]], #[[NONE]], {{.*}}, %[[TWO]] : tensor<4xf32>, f32)
// CHECK: arith.mulf
// CHECK: linalg.generic {indexing_maps = [#[[COLUMN]], {{.*}} ins(%[[X]],
// CHECK: arith.addf
// CHECK-NOT: linalg.generic
// CHECK: return
func.func public @main(%x: tensor<4xf32>, %y: tensor<4x1xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %1 = stablehlo.broadcast_in_dim %y, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x4xf32>
  %c = stablehlo.constant dense<2.0> : tensor<4x4xf32>
  %2 = stablehlo.multiply %1, %c : tensor<4x4xf32>
  %3 = stablehlo.add %0, %2 : tensor<4x4xf32>
  return %3 : tensor<4x4xf32>
}

// -----

// An operation on its identity is its other operand: 1 * x, x - 0, all bits & x. x + 0 is not, for x = -0.
// CHECK-LABEL: // -----
// CHECK: func.func public @main(%[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xi8>)
// CHECK-COUNT-1: linalg.generic
// CHECK: arith.addf
// CHECK: } -> tensor<4xf32>
// CHECK-NEXT: return %[[X]], %{{.*}}, %[[Y]] :
func.func public @main(%x: tensor<4xf32>, %y: tensor<4xi4>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xi4>) {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %ones = stablehlo.broadcast_in_dim %one, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %zeros = stablehlo.constant dense<0.0> : tensor<4xf32>
  %bits = stablehlo.constant dense<-1> : tensor<4xi4>
  %0 = stablehlo.multiply %ones, %x : tensor<4xf32>
  %1 = stablehlo.subtract %0, %zeros : tensor<4xf32>
  %2 = stablehlo.add %1, %zeros : tensor<4xf32>
  %3 = stablehlo.and %bits, %y : tensor<4xi4>
  return %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xi4>
}

// -----

// ERROR: error: parameter 0 of main is tensor<4x?xf32>: its extents must be known first
func.func public @main(%x: tensor<4x?xf32>) -> tensor<4x?xf32> {
  %0 = stablehlo.abs %x : tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}

// -----

// An operation that a rule refuses is named, with its place and its operands.
// ERROR: error: stablehlo.rng_bit_generator: {{.+}}
// ERROR-NEXT: from {{.*}}:[[@LINE+3]]:{{[0-9]+}}
// ERROR-NEXT: operand 0 u64[5]
func.func public @main(%x: tensor<5xui64>) -> tensor<4xui32> {
  %0, %1 = stablehlo.rng_bit_generator %x, algorithm = DEFAULT : (tensor<5xui64>) -> (tensor<5xui64>, tensor<4xui32>)
  return %1 : tensor<4xui32>
}

// -----

// ERROR: error: the module has no function main
func.func public @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
