// emitters / xla: gather f16
// %v46: 1 of 2 differ: [1] np.float16(1.0), not np.float16(0.0)
// ways: emitters xla
// numbers: any
func.func public @main(%p1: tensor<2x1xf16>, %in_v45: tensor<1x2xi32>) -> (tensor<2xf16>) {
%v46 = "stablehlo.gather"(%p1, %in_v45) {dimension_numbers = #stablehlo.gather<offset_dims = [], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [1], start_index_map = [1], index_vector_dim = 0>, slice_sizes = array<i64: 0, 1>, indices_are_sorted = false} : (tensor<2x1xf16>, tensor<1x2xi32>) -> tensor<2xf16>
return %v46 : tensor<2xf16>
}
// argument: 0000003c
// argument: 0000000000000000
