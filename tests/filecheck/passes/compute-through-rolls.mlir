// RUN: stablexla-opt %s -split-input-file --pass-pipeline='builtin.module(stablexla-compute-through-rolls)' | FileCheck %s

// The sum of an array rolled by 1 and by -1 along a dimension of 512 is computed in three blocks, from slices of the
// array itself: the first column, the last one, and the columns between.
// CHECK-LABEL: module @t
// CHECK: %[[ENDS:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<8x1xf32>, tensor<8x1xf32>, tensor<8x1xf32>)
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[0, 0] [8, 1] [1, 1]
// CHECK: tensor.extract_slice %arg0[0, 0] [8, 510] [1, 1]
// CHECK: tensor.extract_slice %arg0[0, 2] [8, 510] [1, 1]
// CHECK: tensor.extract_slice %arg0[0, 1] [8, 510] [1, 1]
// CHECK: arith.addf
// CHECK-NEXT: arith.mulf
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[0, 1] [8, 510] [1, 1]
// CHECK: %[[RESULT:.*]] = tensor.insert_slice %{{.*}} into %{{.*}}[0, 511] [8, 1] [1, 1]
// CHECK: return %[[RESULT]]
#map = affine_map<(d0) -> (d0, 511)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d0, d1 + 1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module @t {
  func.func public @main(%arg0: tensor<8x512xf32>) -> tensor<8x512xf32> {
    %0 = tensor.empty() : tensor<8xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel"]} ins(%arg0 : tensor<8x512xf32>) outs(%0 : tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<8xf32>
    %expanded = tensor.expand_shape %1 [[0, 1]] output_shape [8, 1] : tensor<8xf32> into tensor<8x1xf32>
    %extracted_slice = tensor.extract_slice %arg0[0, 0] [8, 511] [1, 1] : tensor<8x512xf32> to tensor<8x511xf32>
    %2 = tensor.empty() : tensor<8x512xf32>
    %inserted_slice = tensor.insert_slice %expanded into %2[0, 0] [8, 1] [1, 1] : tensor<8x1xf32> into tensor<8x512xf32>
    %inserted_slice_0 = tensor.insert_slice %extracted_slice into %inserted_slice[0, 1] [8, 511] [1, 1] : tensor<8x511xf32> into tensor<8x512xf32>
    %3 = tensor.empty() : tensor<8x511xf32>
    %4 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<8x512xf32>) outs(%3 : tensor<8x511xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<8x511xf32>
    %extracted_slice_1 = tensor.extract_slice %arg0[0, 0] [8, 1] [1, 1] : tensor<8x512xf32> to tensor<8x1xf32>
    %inserted_slice_2 = tensor.insert_slice %4 into %2[0, 0] [8, 511] [1, 1] : tensor<8x511xf32> into tensor<8x512xf32>
    %inserted_slice_3 = tensor.insert_slice %extracted_slice_1 into %inserted_slice_2[0, 511] [8, 1] [1, 1] : tensor<8x1xf32> into tensor<8x512xf32>
    %5 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%inserted_slice_0, %inserted_slice_3 : tensor<8x512xf32>, tensor<8x512xf32>) outs(%2 : tensor<8x512xf32>) {
    ^bb0(%in: f32, %in_4: f32, %out: f32):
      %7 = arith.addf %in, %in_4 : f32
      linalg.yield %7 : f32
    } -> tensor<8x512xf32>
    %6 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%5, %arg0 : tensor<8x512xf32>, tensor<8x512xf32>) outs(%2 : tensor<8x512xf32>) {
    ^bb0(%in: f32, %in_4: f32, %out: f32):
      %7 = arith.mulf %in, %in_4 : f32
      linalg.yield %7 : f32
    } -> tensor<8x512xf32>
    return %6 : tensor<8x512xf32>
  }
}

// -----

// Arrays of fewer than 4096 elements stay in the first-level cache: nothing changes.
// CHECK-LABEL: module @small
// CHECK-NOT: tensor<8x62xf32>
// CHECK: %[[RESULT:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %arg0 : tensor<8x64xf32>, tensor<8x64xf32>)
// CHECK: arith.mulf
// CHECK: return %[[RESULT]]
#map = affine_map<(d0) -> (d0, 63)>
#map1 = affine_map<(d0) -> (d0)>
#map2 = affine_map<(d0, d1) -> (d0, d1 + 1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
module @small {
  func.func public @main(%arg0: tensor<8x64xf32>) -> tensor<8x64xf32> {
    %0 = tensor.empty() : tensor<8xf32>
    %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel"]} ins(%arg0 : tensor<8x64xf32>) outs(%0 : tensor<8xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<8xf32>
    %expanded = tensor.expand_shape %1 [[0, 1]] output_shape [8, 1] : tensor<8xf32> into tensor<8x1xf32>
    %extracted_slice = tensor.extract_slice %arg0[0, 0] [8, 63] [1, 1] : tensor<8x64xf32> to tensor<8x63xf32>
    %2 = tensor.empty() : tensor<8x64xf32>
    %inserted_slice = tensor.insert_slice %expanded into %2[0, 0] [8, 1] [1, 1] : tensor<8x1xf32> into tensor<8x64xf32>
    %inserted_slice_0 = tensor.insert_slice %extracted_slice into %inserted_slice[0, 1] [8, 63] [1, 1] : tensor<8x63xf32> into tensor<8x64xf32>
    %3 = tensor.empty() : tensor<8x63xf32>
    %4 = linalg.generic {indexing_maps = [#map2, #map3], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<8x64xf32>) outs(%3 : tensor<8x63xf32>) {
    ^bb0(%in: f32, %out: f32):
      linalg.yield %in : f32
    } -> tensor<8x63xf32>
    %extracted_slice_1 = tensor.extract_slice %arg0[0, 0] [8, 1] [1, 1] : tensor<8x64xf32> to tensor<8x1xf32>
    %inserted_slice_2 = tensor.insert_slice %4 into %2[0, 0] [8, 63] [1, 1] : tensor<8x63xf32> into tensor<8x64xf32>
    %inserted_slice_3 = tensor.insert_slice %extracted_slice_1 into %inserted_slice_2[0, 63] [8, 1] [1, 1] : tensor<8x1xf32> into tensor<8x64xf32>
    %5 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%inserted_slice_0, %inserted_slice_3 : tensor<8x64xf32>, tensor<8x64xf32>) outs(%2 : tensor<8x64xf32>) {
    ^bb0(%in: f32, %in_4: f32, %out: f32):
      %7 = arith.addf %in, %in_4 : f32
      linalg.yield %7 : f32
    } -> tensor<8x64xf32>
    %6 = linalg.generic {indexing_maps = [#map3, #map3, #map3], iterator_types = ["parallel", "parallel"]} ins(%5, %arg0 : tensor<8x64xf32>, tensor<8x64xf32>) outs(%2 : tensor<8x64xf32>) {
    ^bb0(%in: f32, %in_4: f32, %out: f32):
      %7 = arith.mulf %in, %in_4 : f32
      linalg.yield %7 : f32
    } -> tensor<8x64xf32>
    return %6 : tensor<8x64xf32>
  }
}
