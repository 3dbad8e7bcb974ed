// emitters: died: exit code -6 (program 1197)
// died: exit code -6
// ways: emitters
// numbers: any
func.func public @main(%in_v4: tensor<9x1xf16>, %in_v10: tensor<9x1xf16>, %in_v11: tensor<9x1xi1>) -> (tensor<9x1xf16>) {
%v12 = stablehlo.select %in_v11, %in_v4, %in_v10 : tensor<9x1xi1>, tensor<9x1xf16>
%v28 = stablehlo.add %in_v4, %v12 : tensor<9x1xf16>
return %v28 : tensor<9x1xf16>
}
// argument: 000000000000000000000000000000000000
// argument: 000000000000000000000000000000000000
// argument: 000000000000000000
