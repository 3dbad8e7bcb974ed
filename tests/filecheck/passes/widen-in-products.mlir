// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-widen-in-products)' | FileCheck %s

// The product multiplies bytes, and its body extends them.
// CHECK-LABEL: func.func public @main
// CHECK: linalg.generic {{.*}}ins(%arg0, %arg1 : tensor<4x64xi8>, tensor<64x32xi8>)
// CHECK-NEXT: ^bb0(%[[A:.*]]: i8, %[[B:.*]]: i8, %[[S:.*]]: i32):
// CHECK-DAG: %[[X:.*]] = arith.extsi %[[A]] : i8 to i32
// CHECK-DAG: %[[Y:.*]] = arith.extui %[[B]] : i8 to i32
// CHECK: arith.muli %[[X]], %[[Y]] : i32
// CHECK-NOT: linalg.generic
#id = affine_map<(d0, d1) -> (d0, d1)>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<4x64xi8>, %w: tensor<64x32xi8>) -> tensor<4x32xi32> {
  %e = tensor.empty() : tensor<4x64xi32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x64xi8>) outs(%e : tensor<4x64xi32>) {
  ^bb0(%v: i8, %o: i32):
    %c = arith.extsi %v : i8 to i32
    linalg.yield %c : i32
  } -> tensor<4x64xi32>
  %f = tensor.empty() : tensor<64x32xi32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<64x32xi8>) outs(%f : tensor<64x32xi32>) {
  ^bb0(%v: i8, %o: i32):
    %c = arith.extui %v : i8 to i32
    linalg.yield %c : i32
  } -> tensor<64x32xi32>
  %zero = arith.constant 0 : i32
  %n = tensor.empty() : tensor<4x32xi32>
  %z = linalg.fill ins(%zero : i32) outs(%n : tensor<4x32xi32>) -> tensor<4x32xi32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %b : tensor<4x64xi32>, tensor<64x32xi32>) outs(%z : tensor<4x32xi32>) {
  ^bb0(%p: i32, %q: i32, %o: i32):
    %m = arith.muli %p, %q : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<4x32xi32>
  return %0 : tensor<4x32xi32>
}

// -----

// More than an extension: a zero point is subtracted.
// CHECK-LABEL: func.func public @main
// CHECK: arith.subi
// CHECK: linalg.generic {{.*}}ins(%{{.*}}, %arg1 : tensor<4x64xi32>, tensor<64x32xi32>)
#id = affine_map<(d0, d1) -> (d0, d1)>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<4x64xi8>, %w: tensor<64x32xi32>) -> tensor<4x32xi32> {
  %five = arith.constant 5 : i32
  %e = tensor.empty() : tensor<4x64xi32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x64xi8>) outs(%e : tensor<4x64xi32>) {
  ^bb0(%v: i8, %o: i32):
    %c = arith.extsi %v : i8 to i32
    %d = arith.subi %c, %five : i32
    linalg.yield %d : i32
  } -> tensor<4x64xi32>
  %zero = arith.constant 0 : i32
  %n = tensor.empty() : tensor<4x32xi32>
  %z = linalg.fill ins(%zero : i32) outs(%n : tensor<4x32xi32>) -> tensor<4x32xi32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %w : tensor<4x64xi32>, tensor<64x32xi32>) outs(%z : tensor<4x32xi32>) {
  ^bb0(%p: i32, %q: i32, %o: i32):
    %m = arith.muli %p, %q : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<4x32xi32>
  return %0 : tensor<4x32xi32>
}

// -----

// A convolution reads bytes: of the image under its windows, with a zero of their type as the padding, and the weights.
// CHECK-LABEL: func.func public @main
// CHECK-NOT: linalg.generic
// CHECK: linalg.generic {{.*}}ins(%arg1 : tensor<3xi8>)
// CHECK-NEXT: ^bb0(%[[W:.*]]: i8, %[[S:.*]]: i32):
// CHECK-DAG: %[[Y:.*]] = arith.extsi %[[W]] : i8 to i32
// CHECK-DAG: %[[READ:.*]] = tensor.extract %arg0[%{{.*}}] : tensor<6xi8>
// CHECK: %[[PADDED:.*]] = arith.select %{{.*}}, %[[READ]], %{{.*}} : i8
// CHECK: %[[X:.*]] = arith.extui %[[PADDED]] : i8 to i32
// CHECK: arith.muli %[[X]], %[[Y]] : i32
#id = affine_map<(d0) -> (d0)>
#w = affine_map<(d0, d1) -> (d1)>
#r = affine_map<(d0, d1) -> (d0)>
func.func public @main(%x: tensor<6xi8>, %w: tensor<3xi8>) -> tensor<6xi32> {
  %e = tensor.empty() : tensor<6xi32>
  %a = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<6xi8>) outs(%e : tensor<6xi32>) {
  ^bb0(%v: i8, %o: i32):
    %c = arith.extui %v : i8 to i32
    linalg.yield %c : i32
  } -> tensor<6xi32>
  %f = tensor.empty() : tensor<3xi32>
  %b = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%w : tensor<3xi8>) outs(%f : tensor<3xi32>) {
  ^bb0(%v: i8, %o: i32):
    %c = arith.extsi %v : i8 to i32
    linalg.yield %c : i32
  } -> tensor<3xi32>
  %zero = arith.constant 0 : i32
  %n = tensor.empty() : tensor<6xi32>
  %z = linalg.fill ins(%zero : i32) outs(%n : tensor<6xi32>) -> tensor<6xi32>
  %0 = linalg.generic {indexing_maps = [#w, #r], iterator_types = ["parallel", "reduction"]} ins(%b : tensor<3xi32>) outs(%z : tensor<6xi32>) attrs = {stablexla.convolution = {}} {
  ^bb0(%q: i32, %o: i32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %one = arith.constant 1 : index
    %six = arith.constant 6 : index
    %first = arith.constant 0 : index
    %k = arith.addi %i, %j : index
    %at = arith.subi %k, %one : index
    %inside = arith.cmpi ult, %at, %six : index
    %safe = arith.select %inside, %at, %first : index
    %read = tensor.extract %a[%safe] : tensor<6xi32>
    %p = arith.select %inside, %read, %zero : i32
    %m = arith.muli %p, %q : i32
    %s = arith.addi %o, %m : i32
    linalg.yield %s : i32
  } -> tensor<6xi32>
  return %0 : tensor<6xi32>
}
