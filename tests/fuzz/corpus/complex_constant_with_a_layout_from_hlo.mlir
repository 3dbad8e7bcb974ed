// form hlo: CompileError: cpu: step 2 'tensor' failed in stablexla-lower-to-tensor
// CompileError: cpu: step 2 'tensor' failed in stablexla-lower-to-tensor
// ways: form hlo
// numbers: any
func.func public @main(%in_v52: tensor<1x1xi1>, %in_v53: tensor<1x1xcomplex<f32>>) -> (tensor<1x1xcomplex<f32>>) {
%v54 = stablehlo.constant dense<(0.0, 0.0)> : tensor<1x1xcomplex<f32>>
%v55 = stablehlo.select %in_v52, %in_v53, %v54 : tensor<1x1xi1>, tensor<1x1xcomplex<f32>>
return %v55 : tensor<1x1xcomplex<f32>>
}
// argument: 00
// argument: 0000000000000000
