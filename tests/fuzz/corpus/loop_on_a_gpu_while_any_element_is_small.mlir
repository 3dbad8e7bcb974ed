// gpu:sm_80: died: exit code -6 (program 2000451)
// a truth value that a loop carries lay in memory as one bit, at which MLIR ends the process
// ways: gpu:sm_80
// numbers: any
func.func public @main(%p: tensor<4xi32>, %s: tensor<i1>) -> (tensor<i1>) {
%r = stablehlo.while(%b = %s) : tensor<i1>
cond {
%c = stablehlo.constant dense<2> : tensor<4xi32>
%f = stablehlo.compare LT, %p, %c, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
%z = stablehlo.constant dense<false> : tensor<i1>
%g = stablehlo.reduce(%f init: %z) applies stablehlo.or across dimensions = [0] : (tensor<4xi1>, tensor<i1>) -> tensor<i1>
stablehlo.return %g : tensor<i1>
} do {
%n = stablehlo.not %b : tensor<i1>
stablehlo.return %n : tensor<i1>
}
return %r : tensor<i1>
}
// argument: 02000000030000000400000005000000
// argument: 00
