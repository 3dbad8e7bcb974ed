// How the products of two matrices are computed: tiles of 4 x 16 numbers that stay in vector registers while the loop
// over what is summed up runs, 4 of its steps at a time. The sizes must be multiples of these.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op {transform.readonly}) {
    %product = transform.structured.match ops{["linalg.generic"]}
      attributes {iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>,
                                    #linalg.iterator_type<reduction>]}
      in %module : (!transform.any_op) -> !transform.any_op
    %tile, %loops:3 = transform.structured.tile_using_for %product tile_sizes [4, 16, 4]
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.structured.vectorize %tile : !transform.any_op

    // Multiplication and sum become one operation on vectors.
    %functions = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %functions {
      transform.apply_patterns.vector.reduction_to_contract
      transform.apply_patterns.vector.transfer_permutation_patterns
      transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
      transform.apply_patterns.canonicalization
    } : !transform.any_op

    // The tile is read before the innermost loop, and written after it.
    transform.loop.hoist_loop_invariant_subsets %loops#2 : !transform.any_op

    // What is left are vectors of 16 numbers, multiplied and added.
    transform.apply_patterns to %functions {
      transform.apply_patterns.vector.lower_contraction lowering_strategy = "outerproduct"
      transform.apply_patterns.vector.lower_outerproduct
      transform.apply_patterns.canonicalization
    } : !transform.any_op
    transform.yield
  }
}
