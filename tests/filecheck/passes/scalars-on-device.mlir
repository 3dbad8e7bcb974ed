// RUN: stablexla-opt %s -split-input-file --target=gpu:sm_80 --pass-pipeline='builtin.module(stablexla-scalars-on-device)' | FileCheck %s

// A kernel computes by itself a number that main would read for it; what the host knows is still handed over. A number
// that is stored is computed and stored by a kernel of one thread.
// CHECK: func.func private @kernel_with_0(%[[Y:.*]]: memref<4xf32> {llvm.noalias}, %[[N:.*]]: f32, %[[X:.*]]: memref<1xf32> {llvm.noalias}, %{{.*}}: index, %{{.*}}: index) attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}}
// CHECK: %[[READ:.*]] = memref.load %[[X]]
// CHECK: %[[TWICE:.*]] = arith.addf %[[READ]], %[[READ]]
// CHECK: %[[BOTH:.*]] = arith.mulf %[[TWICE]], %[[N]]
// CHECK: memref.store %[[BOTH]], %[[Y]]
// CHECK: func.func private @scalars_0(%{{.*}}: memref<1xf32>, %{{.*}}: memref<1xf32>, %{{.*}}: index, %{{.*}}: index) attributes {stablexla.launch =
// CHECK: memref.load
// CHECK: arith.negf
// CHECK: memref.store
// CHECK: func.func @main(%[[A:.*]]: memref<1xf32>, %[[B:.*]]: memref<4xf32>, %[[C:.*]]: memref<1xf32>, %[[M:.*]]: f32)
// CHECK: call @kernel_with_0(%[[B]], %[[M]], %[[A]],
// CHECK: call @scalars_0(
// CHECK: return
func.func private @kernel(%s: f32, %y: memref<4xf32> {llvm.noalias}, %n: f32, %lo: index, %hi: index) attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}} {
  %zero = arith.constant 0 : index
  %0 = arith.mulf %s, %n : f32
  memref.store %0, %y[%zero] : memref<4xf32>
  return
}
func.func @main(%x: memref<1xf32>, %y: memref<4xf32>, %z: memref<1xf32>, %n: f32) {
  %zero = arith.constant 0 : index
  %four = arith.constant 4 : index
  %0 = memref.load %x[%zero] : memref<1xf32>
  %1 = arith.addf %0, %0 : f32
  call @kernel(%1, %y, %n, %zero, %four) : (f32, memref<4xf32>, f32, index, index) -> ()
  %2 = arith.negf %0 : f32
  memref.store %2, %z[%zero] : memref<1xf32>
  return
}

// -----

// A number that decides about a branch is read by the host, which then has it for the kernel, too.
// CHECK-LABEL: // -----
// CHECK-NOT: kernel_with
// CHECK: func.func @main(
// CHECK: %[[READ:.*]] = memref.load
// CHECK: %[[P:.*]] = arith.cmpf ogt, %[[READ]]
// CHECK: scf.if %[[P]]
// CHECK: call @kernel(%[[READ]],
func.func private @kernel(%s: f32, %y: memref<4xf32> {llvm.noalias}, %lo: index, %hi: index) attributes {stablexla.launch = {blocks = 1 : i64, shared = 0 : i64, threads = 32 : i64}} {
  return
}
func.func @main(%x: memref<1xf32>, %y: memref<4xf32>, %n: f32) {
  %zero = arith.constant 0 : index
  %four = arith.constant 4 : index
  %0 = memref.load %x[%zero] : memref<1xf32>
  %p = arith.cmpf ogt, %0, %n : f32
  scf.if %p {
    func.call @kernel(%0, %y, %zero, %four) : (f32, memref<4xf32>, index, index) -> ()
  }
  return
}
