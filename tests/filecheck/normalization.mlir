// RUN: stablexla-opt %s --stage=tensor | FileCheck %s

// Sums over all dimensions but the features', in f32 for small floats; the root is taken once for each feature.
// CHECK: func.func public @main(%[[X:.*]]: tensor<4x3x5xbf16>
// CHECK: linalg.generic {{.*}} ["reduction", "parallel", "reduction"]} ins(%[[X]] : {{.*}} : tensor<3xf32>)
// CHECK: arith.divf
// CHECK: linalg.generic {{.*}} ["reduction", "parallel", "reduction"]} ins(%[[X]], %{{.*}}) {{.*}} {
// CHECK: arith.mulf
// CHECK: linalg.generic {{.*}} ["parallel"]
// CHECK: math.sqrt
// CHECK: linalg.generic {{.*}} ["parallel", "parallel", "parallel"]} ins(%[[X]],
// CHECK: arith.divf
// CHECK: arith.truncf {{.*}} : f32 to bf16
func.func public @main(%x: tensor<4x3x5xbf16>, %f: tensor<3xbf16>) -> tensor<4x3x5xbf16> {
  %0:3 = "stablehlo.batch_norm_training"(%x, %f, %f) <{epsilon = 1.0e-3 : f32, feature_index = 1 : i64}>
    : (tensor<4x3x5xbf16>, tensor<3xbf16>, tensor<3xbf16>) -> (tensor<4x3x5xbf16>, tensor<3xbf16>, tensor<3xbf16>)
  return %0#0 : tensor<4x3x5xbf16>
}
