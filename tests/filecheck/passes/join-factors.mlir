// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-join-factors)' | FileCheck %s

// A row by bytes with a scale for each column: the conversion and the scale bear the product's number.
// CHECK-LABEL: func.func public @main
// CHECK: linalg.generic {{.*}}ins(%arg1 : tensor<128x256xi8>){{.*}}stablexla.factor = 0
// CHECK: linalg.generic {{.*}}ins(%{{.*}}, %arg2 : {{.*}}stablexla.factor = 0
// CHECK: linalg.generic {{.*}}ins(%arg0, %{{.*}}stablexla.factor = 0
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#x = affine_map<(d0, d1) -> (d1)>
#w = affine_map<(d0, d1) -> (d1, d0)>
#r = affine_map<(d0, d1) -> (d0)>
func.func public @main(%x: tensor<128xf32>, %q: tensor<128x256xi8>, %s: tensor<256xf32>) -> tensor<256xf32> {
  %e = tensor.empty() : tensor<128x256xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<128x256xi8>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: i8, %o: f32):
    %c = arith.sitofp %a : i8 to f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %s : tensor<128x256xf32>, tensor<256xf32>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %zero = arith.constant 0.0 : f32
  %n = tensor.empty() : tensor<256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%n : tensor<256xf32>) -> tensor<256xf32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<128xf32>, tensor<128x256xf32>) outs(%z : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<256xf32>
  return %0 : tensor<256xf32>
}

// -----

// 17 rows: the weight is dequantised as it is packed.
// CHECK-LABEL: func.func public @main
// CHECK: linalg.generic {{.*}}ins(%arg1 : tensor<128x256xi8>){{.*}}stablexla.factor = 0
// CHECK: linalg.generic {{.*}}ins(%{{.*}}, %arg2 : {{.*}}stablexla.factor = 0
// CHECK: linalg.generic {{.*}}ins(%arg0, %{{.*}}stablexla.factor = 0
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<17x128xf32>, %q: tensor<128x256xi8>, %s: tensor<256xf32>) -> tensor<17x256xf32> {
  %e = tensor.empty() : tensor<128x256xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<128x256xi8>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: i8, %o: f32):
    %c = arith.sitofp %a : i8 to f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %s : tensor<128x256xf32>, tensor<256xf32>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %zero = arith.constant 0.0 : f32
  %n = tensor.empty() : tensor<17x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%n : tensor<17x256xf32>) -> tensor<17x256xf32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<17x128xf32>, tensor<128x256xf32>) outs(%z : tensor<17x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<17x256xf32>
  return %0 : tensor<17x256xf32>
}

// -----

// More rows than the weight has columns: it is dequantised once, by a kernel of its own.
// CHECK-LABEL: func.func public @main
// CHECK-NOT: stablexla.factor
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<257x128xf32>, %q: tensor<128x256xi8>, %s: tensor<256xf32>) -> tensor<257x256xf32> {
  %e = tensor.empty() : tensor<128x256xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<128x256xi8>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: i8, %o: f32):
    %c = arith.sitofp %a : i8 to f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %s : tensor<128x256xf32>, tensor<256xf32>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %zero = arith.constant 0.0 : f32
  %n = tensor.empty() : tensor<257x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%n : tensor<257x256xf32>) -> tensor<257x256xf32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<257x128xf32>, tensor<128x256xf32>) outs(%z : tensor<257x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<257x256xf32>
  return %0 : tensor<257x256xf32>
}

// -----

// Many rows by elements that an instruction multiplies: they are left to it.
// CHECK-LABEL: func.func public @main
// CHECK-NOT: stablexla.factor
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#x = affine_map<(d0, d1, d2) -> (d0, d2)>
#w = affine_map<(d0, d1, d2) -> (d2, d1)>
#r = affine_map<(d0, d1, d2) -> (d0, d1)>
func.func public @main(%x: tensor<17x128xbf16>, %q: tensor<128x256xi8>) -> tensor<17x256xf32> {
  %e = tensor.empty() : tensor<128x256xbf16>
  %w = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<128x256xi8>) outs(%e : tensor<128x256xbf16>) {
  ^bb0(%a: i8, %o: bf16):
    %c = arith.sitofp %a : i8 to bf16
    linalg.yield %c : bf16
  } -> tensor<128x256xbf16>
  %zero = arith.constant 0.0 : f32
  %n = tensor.empty() : tensor<17x256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%n : tensor<17x256xf32>) -> tensor<17x256xf32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<17x128xbf16>, tensor<128x256xbf16>) outs(%z : tensor<17x256xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %f = arith.extf %a : bf16 to f32
    %g = arith.extf %b : bf16 to f32
    %m = arith.mulf %f, %g : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<17x256xf32>
  return %0 : tensor<17x256xf32>
}

// -----

// The weight is a result too: it has to be stored.
// CHECK-LABEL: func.func public @main
// CHECK-NOT: stablexla.factor
// CHECK: return
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#x = affine_map<(d0, d1) -> (d1)>
#w = affine_map<(d0, d1) -> (d1, d0)>
#r = affine_map<(d0, d1) -> (d0)>
func.func public @main(%x: tensor<128xf32>, %q: tensor<128x256xi8>, %s: tensor<256xf32>) -> (tensor<256xf32>, tensor<128x256xf32>) {
  %e = tensor.empty() : tensor<128x256xf32>
  %f = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<128x256xi8>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: i8, %o: f32):
    %c = arith.sitofp %a : i8 to f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %w = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]} ins(%f, %s : tensor<128x256xf32>, tensor<256xf32>) outs(%e : tensor<128x256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c = arith.mulf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<128x256xf32>
  %zero = arith.constant 0.0 : f32
  %n = tensor.empty() : tensor<256xf32>
  %z = linalg.fill ins(%zero : f32) outs(%n : tensor<256xf32>) -> tensor<256xf32>
  %0 = linalg.generic {indexing_maps = [#x, #w, #r], iterator_types = ["parallel", "reduction"]} ins(%x, %w : tensor<128xf32>, tensor<128x256xf32>) outs(%z : tensor<256xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.mulf %a, %b : f32
    %p = arith.addf %o, %m : f32
    linalg.yield %p : f32
  } -> tensor<256xf32>
  return %0, %w : tensor<256xf32>, tensor<128x256xf32>
}
