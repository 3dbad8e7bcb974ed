// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-find-repeats)' | FileCheck %s

// Equal stretches that follow one another become calls of one function. What they read at the same places is its
// parameters: what they share, too. Constants are in it.
// CHECK: func.func private @part_0(%[[X:[a-z0-9]+]]: tensor<4x4xf32>, %[[W:[a-z0-9]+]]: tensor<4x4xf32>, %[[V:[a-z0-9]+]]: tensor<4xf32>, %[[MASK:[a-z0-9]+]]: tensor<4x4xf32>) -> tensor<4x4xf32> attributes {stablexla.part}
// CHECK-NEXT: %[[D:.*]] = stablehlo.dot_general %[[X]], %[[W]]
// CHECK-NEXT: %[[B:.*]] = stablehlo.broadcast_in_dim %[[V]]
// CHECK-NEXT: stablehlo.add %[[D]], %[[B]]
// CHECK-NEXT: %[[T:.*]] = stablehlo.tanh
// CHECK-NEXT: %[[HALF:.*]] = stablehlo.constant
// CHECK-NEXT: %[[H:.*]] = stablehlo.multiply %[[T]], %[[HALF]]
// CHECK-NEXT: %[[R:.*]] = stablehlo.subtract %[[H]], %[[MASK]]
// CHECK-NEXT: return %[[R]]
// CHECK: func.func @main(%[[A:[a-z0-9]+]]: tensor<4x4xf32>, %[[M:[a-z0-9]+]]: tensor<4x4xf32>,
// CHECK-NEXT: %[[ONE:.*]] = call @part_0(%[[A]], %arg2, %arg3, %[[M]])
// CHECK-NEXT: %[[TWO:.*]] = call @part_0(%[[ONE]], %arg4, %arg5, %[[M]])
// CHECK-NEXT: %[[THREE:.*]] = call @part_0(%[[TWO]], %arg6, %arg7, %[[M]])
// CHECK-NEXT: %[[FOUR:.*]] = call @part_0(%[[THREE]], %arg8, %arg9, %[[M]])
// CHECK-NEXT: %[[FIVE:.*]] = call @part_0(%[[FOUR]], %arg10, %arg11, %[[M]])
// CHECK-NEXT: return %[[FIVE]]
func.func @main(%x: tensor<4x4xf32>, %mask: tensor<4x4xf32>, %w0: tensor<4x4xf32>, %v0: tensor<4xf32>, %w1: tensor<4x4xf32>, %v1: tensor<4xf32>, %w2: tensor<4x4xf32>, %v2: tensor<4xf32>, %w3: tensor<4x4xf32>, %v3: tensor<4xf32>, %w4: tensor<4x4xf32>, %v4: tensor<4xf32>) -> tensor<4x4xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<4x4xf32>
  %d0 = stablehlo.dot_general %x, %w0, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b0 = stablehlo.broadcast_in_dim %v0, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %s0 = stablehlo.add %d0, %b0 : tensor<4x4xf32>
  %t0 = stablehlo.tanh %s0 : tensor<4x4xf32>
  %h0 = stablehlo.multiply %t0, %half : tensor<4x4xf32>
  %x0 = stablehlo.subtract %h0, %mask : tensor<4x4xf32>
  %d1 = stablehlo.dot_general %x0, %w1, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b1 = stablehlo.broadcast_in_dim %v1, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %s1 = stablehlo.add %d1, %b1 : tensor<4x4xf32>
  %t1 = stablehlo.tanh %s1 : tensor<4x4xf32>
  %h1 = stablehlo.multiply %t1, %half : tensor<4x4xf32>
  %x1 = stablehlo.subtract %h1, %mask : tensor<4x4xf32>
  %d2 = stablehlo.dot_general %x1, %w2, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b2 = stablehlo.broadcast_in_dim %v2, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %s2 = stablehlo.add %d2, %b2 : tensor<4x4xf32>
  %t2 = stablehlo.tanh %s2 : tensor<4x4xf32>
  %h2 = stablehlo.multiply %t2, %half : tensor<4x4xf32>
  %x2 = stablehlo.subtract %h2, %mask : tensor<4x4xf32>
  %d3 = stablehlo.dot_general %x2, %w3, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b3 = stablehlo.broadcast_in_dim %v3, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %s3 = stablehlo.add %d3, %b3 : tensor<4x4xf32>
  %t3 = stablehlo.tanh %s3 : tensor<4x4xf32>
  %h3 = stablehlo.multiply %t3, %half : tensor<4x4xf32>
  %x3 = stablehlo.subtract %h3, %mask : tensor<4x4xf32>
  %d4 = stablehlo.dot_general %x3, %w4, contracting_dims = [1] x [0] : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %b4 = stablehlo.broadcast_in_dim %v4, dims = [1] : (tensor<4xf32>) -> tensor<4x4xf32>
  %s4 = stablehlo.add %d4, %b4 : tensor<4x4xf32>
  %t4 = stablehlo.tanh %s4 : tensor<4x4xf32>
  %h4 = stablehlo.multiply %t4, %half : tensor<4x4xf32>
  %x4 = stablehlo.subtract %h4, %mask : tensor<4x4xf32>
  return %x4 : tensor<4x4xf32>
}

// -----

// One kernel computes a chain of element-wise operations: it is not cut.
// CHECK-LABEL: // -----
// CHECK-NOT: call
func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %e0 = stablehlo.negate %x : tensor<4x4xf32>
  %e1 = stablehlo.sine %e0 : tensor<4x4xf32>
  %e2 = stablehlo.abs %e1 : tensor<4x4xf32>
  %e3 = stablehlo.tanh %e2 : tensor<4x4xf32>
  %e4 = stablehlo.sqrt %e3 : tensor<4x4xf32>
  %e5 = stablehlo.floor %e4 : tensor<4x4xf32>
  %e6 = stablehlo.negate %e5 : tensor<4x4xf32>
  %e7 = stablehlo.sine %e6 : tensor<4x4xf32>
  %e8 = stablehlo.abs %e7 : tensor<4x4xf32>
  %e9 = stablehlo.tanh %e8 : tensor<4x4xf32>
  %e10 = stablehlo.sqrt %e9 : tensor<4x4xf32>
  %e11 = stablehlo.floor %e10 : tensor<4x4xf32>
  %e12 = stablehlo.negate %e11 : tensor<4x4xf32>
  %e13 = stablehlo.sine %e12 : tensor<4x4xf32>
  %e14 = stablehlo.abs %e13 : tensor<4x4xf32>
  %e15 = stablehlo.tanh %e14 : tensor<4x4xf32>
  %e16 = stablehlo.sqrt %e15 : tensor<4x4xf32>
  %e17 = stablehlo.floor %e16 : tensor<4x4xf32>
  %e18 = stablehlo.negate %e17 : tensor<4x4xf32>
  %e19 = stablehlo.sine %e18 : tensor<4x4xf32>
  %e20 = stablehlo.abs %e19 : tensor<4x4xf32>
  %e21 = stablehlo.tanh %e20 : tensor<4x4xf32>
  %e22 = stablehlo.sqrt %e21 : tensor<4x4xf32>
  %e23 = stablehlo.floor %e22 : tensor<4x4xf32>
  %e24 = stablehlo.negate %e23 : tensor<4x4xf32>
  %e25 = stablehlo.sine %e24 : tensor<4x4xf32>
  %e26 = stablehlo.abs %e25 : tensor<4x4xf32>
  %e27 = stablehlo.tanh %e26 : tensor<4x4xf32>
  %e28 = stablehlo.sqrt %e27 : tensor<4x4xf32>
  %e29 = stablehlo.floor %e28 : tensor<4x4xf32>
  %e30 = stablehlo.negate %e29 : tensor<4x4xf32>
  %e31 = stablehlo.sine %e30 : tensor<4x4xf32>
  %e32 = stablehlo.abs %e31 : tensor<4x4xf32>
  %e33 = stablehlo.tanh %e32 : tensor<4x4xf32>
  %e34 = stablehlo.sqrt %e33 : tensor<4x4xf32>
  %e35 = stablehlo.floor %e34 : tensor<4x4xf32>
  return %e35 : tensor<4x4xf32>
}

// -----

// Operations whose order counts are one of their kind.
// CHECK-LABEL: // -----
// CHECK-NOT: call @
func.func @main(%x: tensor<4x4xf32>, %token: !stablehlo.token) -> !stablehlo.token {
  %k0 = "stablehlo.outfeed"(%x, %token) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k1 = "stablehlo.outfeed"(%x, %k0) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k2 = "stablehlo.outfeed"(%x, %k1) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k3 = "stablehlo.outfeed"(%x, %k2) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k4 = "stablehlo.outfeed"(%x, %k3) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k5 = "stablehlo.outfeed"(%x, %k4) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k6 = "stablehlo.outfeed"(%x, %k5) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k7 = "stablehlo.outfeed"(%x, %k6) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k8 = "stablehlo.outfeed"(%x, %k7) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k9 = "stablehlo.outfeed"(%x, %k8) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k10 = "stablehlo.outfeed"(%x, %k9) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k11 = "stablehlo.outfeed"(%x, %k10) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k12 = "stablehlo.outfeed"(%x, %k11) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k13 = "stablehlo.outfeed"(%x, %k12) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k14 = "stablehlo.outfeed"(%x, %k13) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k15 = "stablehlo.outfeed"(%x, %k14) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k16 = "stablehlo.outfeed"(%x, %k15) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k17 = "stablehlo.outfeed"(%x, %k16) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k18 = "stablehlo.outfeed"(%x, %k17) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k19 = "stablehlo.outfeed"(%x, %k18) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k20 = "stablehlo.outfeed"(%x, %k19) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k21 = "stablehlo.outfeed"(%x, %k20) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k22 = "stablehlo.outfeed"(%x, %k21) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k23 = "stablehlo.outfeed"(%x, %k22) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k24 = "stablehlo.outfeed"(%x, %k23) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k25 = "stablehlo.outfeed"(%x, %k24) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k26 = "stablehlo.outfeed"(%x, %k25) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k27 = "stablehlo.outfeed"(%x, %k26) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k28 = "stablehlo.outfeed"(%x, %k27) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k29 = "stablehlo.outfeed"(%x, %k28) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k30 = "stablehlo.outfeed"(%x, %k29) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k31 = "stablehlo.outfeed"(%x, %k30) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k32 = "stablehlo.outfeed"(%x, %k31) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k33 = "stablehlo.outfeed"(%x, %k32) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k34 = "stablehlo.outfeed"(%x, %k33) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  %k35 = "stablehlo.outfeed"(%x, %k34) {outfeed_config = ""} : (tensor<4x4xf32>, !stablehlo.token) -> !stablehlo.token
  return %k35 : !stablehlo.token
}
