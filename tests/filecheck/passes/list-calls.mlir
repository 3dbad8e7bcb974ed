// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-list-calls)' | FileCheck %s

// Calls of kernels whose code is elsewhere become a list; buffers are numbers of main's arguments, with offsets.
// CHECK: llvm.func @stablexla_run_calls(!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, !llvm.ptr)
// CHECK: llvm.func @first_impl()
// CHECK: llvm.func @second_impl()
// CHECK: llvm.mlir.global internal constant @stablexla_functions()
// CHECK: llvm.mlir.addressof @first_impl
// CHECK: llvm.mlir.addressof @second_impl
// Function 0, 8 items, grain 2, a place, 2 arguments: buffer 0, and buffer 2 from byte 64 on.
// CHECK: llvm.mlir.global internal constant @stablexla_calls(dense<[0, 8, 2, {{[0-9]+}}, 2, 0, 0, 2, 64,
// Function 1, 1 item, no grain, 3 arguments: buffer 2 again, the number 7, buffer 1.
// CHECK-SAME: 1, 1, 0, {{[0-9]+}}, 3, 2, 64, -1, 7, 1, 0,
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[ALL:.*]]: !llvm.ptr) attributes {stablexla.contract = [{stablexla.role = "parameter"}, {stablexla.role = "result"}, {stablexla.role = "arena"}]}
// CHECK-NEXT: %[[NONE:.*]] = llvm.mlir.zero
// CHECK-NEXT: %[[FUNCTIONS:.*]] = llvm.mlir.addressof @stablexla_functions
// CHECK-NEXT: %[[CALLS:.*]] = llvm.mlir.addressof @stablexla_calls
// CHECK-NEXT: %[[FIRST:.*]] = llvm.getelementptr %[[CALLS]][0]
// CHECK-NEXT: %[[LENGTH:.*]] = llvm.mlir.constant(38 : i64)
// CHECK-NEXT: llvm.call @stablexla_run_calls(%[[FUNCTIONS]], %[[FIRST]], %[[LENGTH]], %[[ALL]], %[[NONE]]) {stablexla.places = {{\[\[}}"first_impl", #loc{{[0-9]*}}], ["second_impl", #loc{{[0-9]*}}]]}
// CHECK-NEXT: return
func.func private @first_impl(memref<4xf32>, memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func private @second_impl(memref<4xf32>, i32, memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32> {stablexla.role = "parameter"}, %out: memref<4xf32> {stablexla.role = "result"},
                %arena: memref<128xi8> {stablexla.role = "arena"}) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %eight = arith.constant 8 : index
  %place = arith.constant 64 : index
  %seven = arith.constant 7 : i32
  %t = memref.view %arena[%place][] : memref<128xi8> to memref<4xf32>
  call @first_impl(%x, %t, %zero, %eight) {stablexla.grain = 2 : i64} : (memref<4xf32>, memref<4xf32>, index, index) -> ()
  call @second_impl(%t, %seven, %out, %zero, %one) : (memref<4xf32>, i32, memref<4xf32>, index, index) -> ()
  call @first_impl(%x, %out, %zero, %eight) : (memref<4xf32>, memref<4xf32>, index, index) -> ()
  call @first_impl(%out, %x, %zero, %eight) : (memref<4xf32>, memref<4xf32>, index, index) -> ()
  return
}

// -----

// What reads or writes memory stays where it stands between them, and finds its buffers in the array; a kernel that
// takes a float is called, at all its places.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[ALL:.*]]: !llvm.ptr)
// CHECK: %[[CELL:.*]] = llvm.getelementptr %[[ALL]][0]
// CHECK-NEXT: %[[CELL_AT:.*]] = llvm.load %[[CELL]]
// CHECK-NEXT: %[[AT:.*]] = llvm.load %[[CELL_AT]]
// CHECK: llvm.insertvalue %[[AT]]
// CHECK: %[[X:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<4xf32>
// CHECK: llvm.call @stablexla_run_calls
// CHECK: %[[NUMBER:.*]] = memref.load %[[X]][%{{.*}}]
// CHECK: call @scaled_impl(%[[X]], %[[NUMBER]],
// CHECK: call @scaled_impl(%[[X]], %{{.*}},
// CHECK: llvm.call @stablexla_run_calls
// CHECK: return
func.func private @kernel_impl(memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func private @scaled_impl(memref<4xf32>, f32, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2.0 : f32
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  %number = memref.load %x[%one] : memref<4xf32>
  call @scaled_impl(%x, %number, %zero, %one) : (memref<4xf32>, f32, index, index) -> ()
  call @scaled_impl(%x, %two, %zero, %one) : (memref<4xf32>, f32, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  return
}

// -----

// Integers that main computes are handed over in an array of its own.
// CHECK: llvm.mlir.global internal constant @stablexla_calls(dense<[0, 1, 0, [[PLACE:[0-9]+]], 2, -2, 0, 0, 0,
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[ALL:.*]]: !llvm.ptr)
// CHECK: %[[ROOM:.*]] = llvm.alloca %{{.*}} x i64
// CHECK: %[[NUMBER:.*]] = memref.load
// CHECK: %[[WIDE:.*]] = arith.extui %[[NUMBER]] : i32 to i64
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[ROOM]][0]
// CHECK: llvm.store %[[WIDE]], %[[AT]]
// CHECK: llvm.call @stablexla_run_calls(%{{.*}}, %{{.*}}, %{{.*}}, %[[ALL]], %[[ROOM]])
func.func private @kernel_impl(i32, memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32>, %n: memref<1xi32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %number = memref.load %n[%zero] : memref<1xi32>
  call @kernel_impl(%number, %x, %zero, %one) : (i32, memref<4xf32>, index, index) -> ()
  call @kernel_impl(%number, %x, %zero, %one) : (i32, memref<4xf32>, index, index) -> ()
  call @kernel_impl(%number, %x, %zero, %one) : (i32, memref<4xf32>, index, index) -> ()
  call @kernel_impl(%number, %x, %zero, %one) : (i32, memref<4xf32>, index, index) -> ()
  return
}

// -----

// A narrow integer may be the eighth argument, and none behind it.
// CHECK: llvm.func @eighth_impl()
// CHECK-NOT: llvm.func @ninth_impl()
// CHECK-LABEL: func.func @main(
// CHECK: call @ninth_impl(
func.func private @eighth_impl(i64, i64, i64, i64, i64, i64, i64, i8, i64, index, index) attributes {stablexla.elsewhere}
func.func private @ninth_impl(i64, i64, i64, i64, i64, i64, i64, i64, i8, index, index) attributes {stablexla.elsewhere}
func.func @main() {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %n = arith.constant 5 : i64
  %b = arith.constant 5 : i8
  call @eighth_impl(%n, %n, %n, %n, %n, %n, %n, %b, %n, %zero, %one) : (i64, i64, i64, i64, i64, i64, i64, i8, i64, index, index) -> ()
  call @eighth_impl(%n, %n, %n, %n, %n, %n, %n, %b, %n, %zero, %one) : (i64, i64, i64, i64, i64, i64, i64, i8, i64, index, index) -> ()
  call @eighth_impl(%n, %n, %n, %n, %n, %n, %n, %b, %n, %zero, %one) : (i64, i64, i64, i64, i64, i64, i64, i8, i64, index, index) -> ()
  call @eighth_impl(%n, %n, %n, %n, %n, %n, %n, %b, %n, %zero, %one) : (i64, i64, i64, i64, i64, i64, i64, i8, i64, index, index) -> ()
  call @ninth_impl(%n, %n, %n, %n, %n, %n, %n, %n, %b, %zero, %one) : (i64, i64, i64, i64, i64, i64, i64, i64, i8, index, index) -> ()
  return
}

// -----

// An operation that touches no memory ends no list.
// CHECK-LABEL: func.func @main(
// CHECK: math.sin
// CHECK: llvm.call @stablexla_run_calls
// CHECK-NOT: stablexla_run_calls
// CHECK: memref.store
func.func private @kernel_impl(memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %number = memref.load %x[%zero] : memref<4xf32>
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  %sine = math.sin %number : f32
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  memref.store %sine, %x[%zero] : memref<4xf32>
  return
}

// -----

// Calls in loops stay; too few others are no list, nor are calls of kernels that are in the module.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: memref<4xf32>
// CHECK-NOT: stablexla_run_calls
func.func private @kernel_impl(memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func private @here_impl(%x: memref<4xf32>, %low: index, %high: index) { return }
func.func @main(%x: memref<4xf32>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %five = arith.constant 5 : index
  scf.for %i = %zero to %five step %one {
    func.call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  }
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @here_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @here_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @here_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @here_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  return
}
