// emitters / interpreter: convolution i32 (program 200001)
// %v33: 1 of 2 differ: [0] np.int32(1), not np.int32(0)
// ways: emitters interpreter
// numbers: any
func.func public @main(%in_v32: tensor<1x2x1xi32>) -> (tensor<2x1x1xi32>) {
%v9 = stablehlo.iota dim = 1 : tensor<2x2x2xi32>
%v33 = stablehlo.convolution(%v9, %in_v32) dim_numbers = [0, b, f]x[0, i, o]->[b, 0, f], window = {stride = [2], pad = [[0, -1]], lhs_dilate = [2], rhs_dilate = [2], reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x2x2xi32>, tensor<1x2x1xi32>) -> tensor<2x1x1xi32>
return %v33 : tensor<2x1x1xi32>
}
// argument: 0000000001000000
