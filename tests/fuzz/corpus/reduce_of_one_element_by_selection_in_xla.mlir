// emitters / xla: reduce f64
// %v15#0: 1 of 5 differ: [3] np.float64(0.0), not np.float64(-inf)
// ways: emitters xla
// numbers: any
func.func public @main(%p1: tensor<1x5xf64>) -> (tensor<5xf64>, tensor<5xf64>) {
%v5 = stablehlo.iota dim = 0 : tensor<1x5xf64>
%v6 = stablehlo.constant dense<0.0> : tensor<f64>
%v7 = stablehlo.constant dense<0.0> : tensor<f64>
%v15:2 = "stablehlo.reduce"(%p1, %v5, %v6, %v7) ({
^bb0(%v8: tensor<f64>, %v9: tensor<f64>, %v10: tensor<f64>, %v11: tensor<f64>):
%v12 = stablehlo.compare GT, %v8, %v10 : (tensor<f64>, tensor<f64>) -> tensor<i1>
%v13 = stablehlo.select %v12, %v8, %v10 : tensor<i1>, tensor<f64>
%v14 = stablehlo.select %v12, %v9, %v11 : tensor<i1>, tensor<f64>
stablehlo.return %v13, %v14 : tensor<f64>, tensor<f64>
}) {dimensions = array<i64: 0>} : (tensor<1x5xf64>, tensor<1x5xf64>, tensor<f64>, tensor<f64>) -> (tensor<5xf64>, tensor<5xf64>)
return %v15#0, %v15#1 : tensor<5xf64>, tensor<5xf64>
}
// argument: 00000000000000000000000000000080000000000000f07f000000000000f0ff000000000000f87f
