// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-list-calls)' | FileCheck %s

// Calls of kernels whose code is elsewhere become a list, and main has no body where it does nothing else; buffers are
// numbers of its arguments, with offsets.
// CHECK: llvm.func @main(!llvm.ptr) attributes
// CHECK-SAME: stablexla.contract = [{stablexla.role = "parameter"}, {stablexla.role = "result"}, {stablexla.role = "arena"}]
// CHECK-SAME: stablexla.list = {functions = ["first_impl", "second_impl"],
// Function 0, 8 items, grain 2, a place, 2 arguments: buffer 0, and buffer 2 from byte 64 on.
// CHECK-SAME: numbers = dense<[0, 8, 2, {{[0-9]+}}, 2, 0, 0, 2, 64,
// Function 1, 1 item, no grain, 3 arguments: buffer 2 again, the number 7, buffer 1.
// CHECK-SAME: 1, 1, 0, {{[0-9]+}}, 3, 2, 64, -1, 7, 1, 0,
// CHECK-SAME: stablexla.places = {{\[\[}}"first_impl", #loc{{[0-9]*}}], ["second_impl", #loc{{[0-9]*}}]]}
// CHECK-NOT: llvm.func
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
// takes a half is called, at all its places.
// CHECK: llvm.func @stablexla_run_calls(!llvm.ptr, !llvm.ptr, i64, !llvm.ptr, !llvm.ptr)
// CHECK: llvm.func @kernel_impl()
// CHECK: llvm.mlir.global internal constant @stablexla_functions()
// CHECK: llvm.mlir.addressof @kernel_impl
// CHECK: llvm.mlir.global internal constant @stablexla_calls(dense<[0, 1, 0, {{[0-9]+}}, 1, 0, 0,
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[ALL:.*]]: !llvm.ptr)
// CHECK: %[[CELL:.*]] = llvm.getelementptr %[[ALL]][0]
// CHECK-NEXT: %[[CELL_AT:.*]] = llvm.load %[[CELL]]
// CHECK-NEXT: %[[AT:.*]] = llvm.load %[[CELL_AT]]
// CHECK: llvm.insertvalue %[[AT]]
// CHECK: %[[X:.*]] = builtin.unrealized_conversion_cast %{{.*}} to memref<4xf32>
// CHECK: %[[NONE:.*]] = llvm.mlir.zero
// CHECK: %[[FUNCTIONS:.*]] = llvm.mlir.addressof @stablexla_functions
// CHECK-NEXT: %[[CALLS:.*]] = llvm.mlir.addressof @stablexla_calls
// CHECK-NEXT: %[[FIRST:.*]] = llvm.getelementptr %[[CALLS]][0]
// CHECK-NEXT: %[[LENGTH:.*]] = llvm.mlir.constant(14 : i64)
// CHECK-NEXT: llvm.call @stablexla_run_calls(%[[FUNCTIONS]], %[[FIRST]], %[[LENGTH]], %[[ALL]], %[[NONE]]) {stablexla.places = {{\[\[}}"kernel_impl", #loc{{[0-9]*}}]]}
// CHECK: %[[NUMBER:.*]] = memref.load %{{.*}}[%{{.*}}] : memref<4xf16>
// CHECK: call @scaled_impl(%[[X]], %[[NUMBER]],
// CHECK: call @scaled_impl(%[[X]], %{{.*}},
// CHECK: llvm.call @stablexla_run_calls
// CHECK: return
func.func private @kernel_impl(memref<4xf32>, index, index) attributes {stablexla.elsewhere}
func.func private @scaled_impl(memref<4xf32>, f16, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32>, %h: memref<4xf16>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2.0 : f16
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  %number = memref.load %h[%one] : memref<4xf16>
  call @scaled_impl(%x, %number, %zero, %one) : (memref<4xf32>, f16, index, index) -> ()
  call @scaled_impl(%x, %two, %zero, %one) : (memref<4xf32>, f16, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  call @kernel_impl(%x, %zero, %one) : (memref<4xf32>, index, index) -> ()
  return
}

// -----

// Floats of 32 and 64 bits are their bits, those of bf16 integers; what main computes of them is handed over, too.
// CHECK: llvm.mlir.global internal constant @stablexla_calls(dense<[0, 1, 0, [[PLACE:[0-9]+]], 6, 0, 0,
// CHECK-SAME: -6, 1073741824, -6, -4616189618054758400, -1, 16384, -7, 0, -2, 1,
// CHECK-LABEL: func.func @main(
// CHECK: %[[ROOM:.*]] = llvm.alloca %{{.*}} x i64
// CHECK: %[[BITS:.*]] = arith.bitcast %{{.*}} : f32 to i32
// CHECK: %[[WIDE:.*]] = arith.extui %[[BITS]] : i32 to i64
// CHECK: %[[AT:.*]] = llvm.getelementptr %[[ROOM]][0]
// CHECK: llvm.store %[[WIDE]], %[[AT]]
// CHECK: arith.bitcast %{{.*}} : bf16 to i16
// CHECK: llvm.getelementptr %[[ROOM]][1]
func.func private @scaled_impl(memref<4xf32>, f32, f64, bf16, f32, bf16, index, index) attributes {stablexla.elsewhere}
func.func @main(%x: memref<4xf32>, %h: memref<4xbf16>) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2.0 : f32
  %minus = arith.constant -1.0 : f64
  %half = arith.constant 2.0 : bf16
  %number = memref.load %x[%one] : memref<4xf32>
  %bits = memref.load %h[%one] : memref<4xbf16>
  call @scaled_impl(%x, %two, %minus, %half, %number, %bits, %zero, %one) : (memref<4xf32>, f32, f64, bf16, f32, bf16, index, index) -> ()
  call @scaled_impl(%x, %two, %minus, %half, %number, %bits, %zero, %one) : (memref<4xf32>, f32, f64, bf16, f32, bf16, index, index) -> ()
  call @scaled_impl(%x, %two, %minus, %half, %number, %bits, %zero, %one) : (memref<4xf32>, f32, f64, bf16, f32, bf16, index, index) -> ()
  call @scaled_impl(%x, %two, %minus, %half, %number, %bits, %zero, %one) : (memref<4xf32>, f32, f64, bf16, f32, bf16, index, index) -> ()
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
