// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-bf16-as-bits)' | FileCheck %s

// Values, signatures, constants, structs and element types of addresses have the type of the bits.
// CHECK-NOT: bf16
// CHECK: llvm.func @moved(%[[P:.*]]: !llvm.ptr, %[[X:.*]]: i16) -> vector<2xi16>
// CHECK: llvm.mlir.constant(16320 : i16) : i16
// CHECK: llvm.mlir.constant(dense<[16256, -16384]> : vector<2xi16>) : vector<2xi16>
// CHECK: llvm.getelementptr %[[P]][1] : (!llvm.ptr) -> !llvm.ptr, i16
// CHECK: llvm.alloca %{{.*}} x !llvm.struct<(i16, f32)>
// CHECK-NOT: bf16
llvm.func @moved(%p: !llvm.ptr, %x: bf16) -> vector<2xbf16> {
  %c = llvm.mlir.constant(1.5 : bf16) : bf16
  %v = llvm.mlir.constant(dense<[1.0, -2.0]> : vector<2xbf16>) : vector<2xbf16>
  %one = llvm.mlir.constant(1 : i64) : i64
  %q = llvm.getelementptr %p[1] : (!llvm.ptr) -> !llvm.ptr, bf16
  %s = llvm.alloca %one x !llvm.struct<(bf16, f32)> : (i64) -> !llvm.ptr
  llvm.store %c, %q : bf16, !llvm.ptr
  llvm.store %x, %s : bf16, !llvm.ptr
  llvm.return %v : vector<2xbf16>
}

// -----

// Bits that an instruction takes as bf16 stay such; other types are left alone.
// CHECK-LABEL: // -----
// CHECK: llvm.func @instruction(%{{.*}}: vector<32xi16>, %{{.*}}: f16) -> f16
// CHECK: llvm.bitcast %{{.*}} : vector<32xi16> to vector<32xbf16>
// CHECK: llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"({{.*}}vector<32xbf16>
llvm.func @instruction(%x: vector<32xbf16>, %y: f16) -> f16 {
  %bits = llvm.bitcast %x : vector<32xbf16> to vector<32xi16>
  %taken = llvm.bitcast %bits : vector<32xi16> to vector<32xbf16>
  %zero = llvm.mlir.constant(dense<0.0> : vector<16xf32>) : vector<16xf32>
  %0 = llvm.call_intrinsic "llvm.x86.avx512bf16.dpbf16ps.512"(%zero, %taken, %taken)
    : (vector<16xf32>, vector<32xbf16>, vector<32xbf16>) -> vector<16xf32>
  llvm.return %y : f16
}

// -----

// A module of which an earlier pass noted that it holds none is not searched; the note goes.
// CHECK-LABEL: // -----
// CHECK-NOT: stablexla.no_bf16
// CHECK: llvm.func @noted(%{{.*}}: bf16)
module attributes {stablexla.no_bf16} {
  llvm.func @noted(%x: bf16) {
    llvm.return
  }
}
