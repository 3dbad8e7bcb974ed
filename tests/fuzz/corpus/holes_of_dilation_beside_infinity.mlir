// emitters / interpreter: convolution f32
// %m8_0: 8 of 16 differ: [1] np.float32(0.0), not np.float32(nan); [3] np.float32(0.0), not np.float32(nan); [5] np.float32(0.0), not np.float32(nan)
// ways: emitters interpreter
// numbers: any
func.func public @main(%in_v4: tensor<2x5x1xf32>, %in_v7: tensor<4x1x1xf32>) -> (tensor<2x8x1xf32>) {
    %m8_0 = stablehlo.convolution(%in_v4, %in_v7) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]], lhs_dilate = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x5x1xf32>, tensor<4x1x1xf32>) -> tensor<2x8x1xf32>
return %m8_0 : tensor<2x8x1xf32>
}
// argument: 00000000000000000000000000000000000000000000000000000000000000000000000000000000
// argument: 000000000000000000000000000080ff
