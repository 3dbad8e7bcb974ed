// emitters / xla: dot_general f32
// %m1_0: 1 of 2 differ: [1] np.float32(-1.3558357e+21), not np.float32(-1.3604277e+21)
// ways: emitters xla
// numbers: any
func.func public @main(%p0: tensor<2x2xf32>, %p1: tensor<2x1xf32>) -> (tensor<2x1xf32>) {
    %m1_0 = stablehlo.dot_general %p0, %p1, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = false> : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x1xf32>
return %m1_0 : tensor<2x1xf32>
}
// argument: 000000000000000000000000747f93e2
// argument: 000000000000803f
