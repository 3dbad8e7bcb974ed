// RUN: stablexla-opt %s --pass-pipeline='builtin.module(stablexla-expand-math)' | FileCheck %s

// An elementary function is arithmetic, on scalars and on vectors alike.
// CHECK-LABEL: func.func @functions
// CHECK-SAME: (%[[X:.*]]: f32, %[[V:.*]]: vector<8xf32>)
// CHECK-NOT: math.exp
// CHECK-NOT: math.tanh
// CHECK: math.fma {{.*}} : f32
// CHECK: math.fma {{.*}} : vector<8xf32>
// CHECK-NOT: math.tanh
// CHECK: return
func.func @functions(%x: f32, %v: vector<8xf32>) -> (f32, vector<8xf32>) {
  %0 = math.exp %x : f32
  %1 = math.tanh %v : vector<8xf32>
  return %0, %1 : f32, vector<8xf32>
}

// What processors have instructions for stays.
// CHECK-LABEL: func.func @instructions
// CHECK-NEXT: math.sqrt %{{.*}} : f32
// CHECK-NEXT: math.absf %{{.*}} : f32
// CHECK-NEXT: math.fma %{{.*}} : f32
// CHECK-NEXT: math.floor %{{.*}} : f32
// CHECK-NEXT: return
func.func @instructions(%x: f32) -> f32 {
  %0 = math.sqrt %x : f32
  %1 = math.absf %0 : f32
  %2 = math.fma %1, %x, %x : f32
  %3 = math.floor %2 : f32
  return %3 : f32
}

// In the body of a loop nest too.
// CHECK-LABEL: func.func @loops
// CHECK: linalg.generic
// CHECK-NOT: math.log
// CHECK: linalg.yield
func.func @loops(%x: tensor<4xf64>) -> tensor<4xf64> {
  %0 = tensor.empty() : tensor<4xf64>
  %1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf64>) outs(%0 : tensor<4xf64>) {
  ^bb0(%in: f64, %out: f64):
    %2 = math.log %in : f64
    linalg.yield %2 : f64
  } -> tensor<4xf64>
  return %1 : tensor<4xf64>
}
