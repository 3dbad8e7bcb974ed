// RUN: not stablexla-opt %s -split-input-file --stage=tensor 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=ERROR --input-file=%t

// Arithmetic on complex numbers is arithmetic on their parts.
// CHECK: complex.create %{{.*}}, %{{.*}} : complex<f32>
// CHECK: ^bb0(%[[A:.*]]: complex<f32>, %[[B:.*]]: complex<f32>, %{{.*}}: complex<f32>):
// CHECK-DAG: %[[AR:.*]] = complex.re %[[A]]
// CHECK-DAG: %[[AI:.*]] = complex.im %[[A]]
// CHECK-DAG: %[[BR:.*]] = complex.re %[[B]]
// CHECK-DAG: %[[BI:.*]] = complex.im %[[B]]
// CHECK-DAG: %[[RR:.*]] = arith.mulf %[[AR]], %[[BR]] : f32
// CHECK-DAG: %[[II:.*]] = arith.mulf %[[AI]], %[[BI]] : f32
// CHECK: arith.subf %[[RR]], %[[II]] : f32
// CHECK-NOT: complex.mul
// CHECK: ^bb0(%[[C:.*]]: complex<f32>, %{{.*}}: f32):
// CHECK-NEXT: complex.im %[[C]]
func.func public @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xcomplex<f32>>, tensor<4xf32>) {
  %0 = stablehlo.complex %x, %y : tensor<4xcomplex<f32>>
  %1 = stablehlo.multiply %0, %0 : tensor<4xcomplex<f32>>
  %2 = stablehlo.imag %1 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  return %1, %2 : tensor<4xcomplex<f32>>, tensor<4xf32>
}

// -----

// A complex scalar is one value.
// CHECK-LABEL: // -----
// CHECK-NOT: linalg
// CHECK: %[[Z:.*]] = tensor.extract %arg0[] : tensor<complex<f64>>
// CHECK: complex.re %[[Z]]
// CHECK: complex.create
// CHECK: tensor.from_elements {{.*}} : tensor<complex<f64>>
func.func public @main(%z: tensor<complex<f64>>) -> tensor<complex<f64>> {
  %0 = stablehlo.add %z, %z : tensor<complex<f64>>
  return %0 : tensor<complex<f64>>
}

// -----

// One division for both parts, in f64; those by a real divisor in a branch.
// CHECK-LABEL: // -----
// CHECK-NOT: arith.divf
// CHECK: %[[INVERSE:.*]] = arith.divf %{{.*}}, %{{.*}} : f64
// CHECK-NEXT: arith.mulf %{{.*}}, %[[INVERSE]] : f64
// CHECK-NEXT: arith.mulf %{{.*}}, %[[INVERSE]] : f64
// CHECK-NOT: arith.divf
// CHECK: scf.if
// CHECK-COUNT-2: arith.divf
// CHECK: else
// CHECK-NOT: arith.divf
func.func public @main(%x: tensor<16xcomplex<f32>>, %y: tensor<16xcomplex<f32>>) -> tensor<16xcomplex<f32>> {
  %0 = stablehlo.divide %x, %y : tensor<16xcomplex<f32>>
  return %0 : tensor<16xcomplex<f32>>
}

// -----

// Nothing says what the remainder of complex numbers is.
// ERROR: error: {{.*}}remainder
func.func public @main(%z: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %0 = stablehlo.remainder %z, %z : tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}
