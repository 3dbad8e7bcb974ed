// emitters / xla: power ui16
// %0: 1 of 1 differ: [0] np.uint16(37969), not np.uint16(15441)
// ways: emitters xla
// numbers: any
func.func public @main(%arg0: tensor<1xui16>, %arg1: tensor<1xui16>) -> (tensor<1xui16>) {
    %0 = stablehlo.power %arg0, %arg1 : tensor<1xui16>
return %0 : tensor<1xui16>
}
// argument: 1100
// argument: a589
