// emitters: died: exit code -6
// died: exit code -6
// ways: emitters
// numbers: any
func.func public @main() -> (tensor<f6E2M3FN>) {
%m1_v12 = stablehlo.constant dense<0xFF800000> : tensor<f32>
%v16 = stablehlo.convert %m1_v12 : (tensor<f32>) -> tensor<f6E2M3FN>
return %v16 : tensor<f6E2M3FN>
}
