// form hlo: CompileError: cpu: step 2 'tensor' failed in stablexla-lower-to-tensor (program 1020264)
// HLO holds a constant of complex numbers without elements
// ways: form hlo
// numbers: any
func.func public @main(%arg0: tensor<0x0x0xcomplex<f64>>, %arg1: tensor<0x0x0xcomplex<f64>>) -> (tensor<0x0x0xcomplex<f64>>) {
    %0 = "stablehlo.triangular_solve"(%arg0, %arg1) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : (tensor<0x0x0xcomplex<f64>>, tensor<0x0x0xcomplex<f64>>) -> tensor<0x0x0xcomplex<f64>>
return %0 : tensor<0x0x0xcomplex<f64>>
}
// argument: 
// argument: 
