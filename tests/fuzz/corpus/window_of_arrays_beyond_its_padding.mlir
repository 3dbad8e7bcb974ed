// emitters: CompileError: cpu: step 1 'stablehlo' failed in stablexla-expand-computations
// CompileError: cpu: step 1 'stablehlo' failed in stablexla-expand-computations
// ways: emitters
// numbers: any
func.func public @main(%p0: tensor<1x1xi1>) -> (tensor<0x0xi1>) {
%v1 = stablehlo.minimum %p0, %p0 : tensor<1x1xi1>
%v2 = stablehlo.constant dense<false> : tensor<i1>
%v31 = "stablehlo.reduce_window"(%v1, %v2) ({
^bb0(%v3: tensor<i1>, %v4: tensor<i1>):
%v5 = stablehlo.constant dense<true> : tensor<3x1x2xi1>
%v7 = stablehlo.constant dense<true> : tensor<i1>
%v11 = "stablehlo.reduce"(%v5, %v7) ({
^bb0(%v8: tensor<i1>, %v9: tensor<i1>):
%v10 = stablehlo.constant dense<true> : tensor<i1>
stablehlo.return %v10 : tensor<i1>
}) {dimensions = array<i64: 0>} : (tensor<3x1x2xi1>, tensor<i1>) -> tensor<1x2xi1>
%v20 = stablehlo.constant dense<true> : tensor<i1>
%v21 = stablehlo.constant dense<true> : tensor<2xi1>
%v25 = "stablehlo.sort"(%v21) ({
^bb0(%v22: tensor<i1>, %v23: tensor<i1>):
%v24 = stablehlo.constant dense<true> : tensor<i1>
stablehlo.return %v24 : tensor<i1>
}) {dimension = 0 : i64, is_stable = true} : (tensor<2xi1>) -> tensor<2xi1>
%v26 = stablehlo.constant dense<true> : tensor<2xi1>
%v27 = stablehlo.constant dense<0> : tensor<i32>
%v28 = stablehlo.dynamic_slice %v26, %v27, sizes = [1] : (tensor<2xi1>, tensor<i32>) -> tensor<1xi1>
%v29 = stablehlo.reshape %v28 : (tensor<1xi1>) -> tensor<i1>
%v30 = stablehlo.and %v20, %v29 : tensor<i1>
stablehlo.return %v30 : tensor<i1>
}) {window_dimensions = array<i64: 3, 3>, window_strides = array<i64: 2, 1>, base_dilations = array<i64: 1, 1>, window_dilations = array<i64: 1, 1>, padding = dense<[[0, -1], [-1, -1]]> : tensor<2x2xi64>} : (tensor<1x1xi1>, tensor<i1>) -> tensor<0x0xi1>
return %v31 : tensor<0x0xi1>
}
// argument: 00
