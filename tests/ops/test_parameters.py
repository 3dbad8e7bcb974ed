"""The builder's functions take the parameters of XLA's operation semantics, under their names and in their order.

Oracle: the tables of that document.
"""

from __future__ import annotations

import inspect

import pytest

import stablexla as sx

TABLES = {
    "after_all": "operands",
    "all_gather": "operand all_gather_dim shard_count replica_groups channel_id",
    "all_reduce": "operand computation replica_groups channel_id",
    "all_to_all": "operand split_dimension concat_dimension split_count replica_groups",
    "batch_norm_grad": "operand scale mean variance grad_output epsilon feature_index",
    "batch_norm_inference": "operand scale offset mean variance epsilon feature_index",
    "batch_norm_training": "operand scale offset epsilon feature_index",
    "bitcast_convert_type": "operand new_element_type",
    "broadcast": "operand broadcast_sizes",
    "broadcast_in_dim": "operand out_dim_size broadcast_dimensions",
    "call": "computation args",
    "cholesky": "a lower",
    "clamp": "min operand max",
    "collapse": "operand dimensions",
    "collective_permute": "operand source_target_pairs",
    "composite_call": "inputs name composite_attributes decomposition version",
    "concatenate": "operands dimension",
    "conv_with_general_padding": "lhs rhs window_strides padding lhs_dilation rhs_dilation feature_group_count "
    "batch_group_count",
    "convert_element_type": "operand new_element_type",
    "custom_call": "target_name args shape",
    "dot": "lhs rhs",
    "dot_general": "lhs rhs dimension_numbers",
    "dynamic_slice": "operand start_indices size_indices",
    "dynamic_update_slice": "operand update start_indices",
    "fft": "operand fft_type fft_length",
    "gather": "operand start_indices index_vector_dim offset_dims slice_sizes collapsed_slice_dims start_index_map "
    "indices_are_sorted",
    "get_dimension_size": "operand dimension",
    "map": "operands computation dimensions static_operands",
    # Those of xla_builder.h, which the document does not have.
    "dynamic_reshape": "operand dim_sizes new_size_bounds dims_are_dynamic",
    "mhlo_dynamic_broadcast_in_dim": "operand output_dimensions broadcast_dimensions output_shape",
    "mhlo_dynamic_reshape": "operand output_shape shape",
    "mulhi": "lhs rhs broadcast_dimensions",
    "ragged_dot": "lhs rhs group_sizes dimension_numbers precision_config preferred_element_type",
    "remove_dynamic_dimension": "operand dimension",
    "reshape_with_inferred_dimension": "operand new_sizes inferred_dimension",
    "scaled_dot": "lhs rhs lhs_scale rhs_scale dimension_numbers precision_config preferred_element_type",
    "scan": "inputs inits computation scan_dimension scan_dimension_size is_reverse is_associative",
    "stochastic_convert_type": "operand random new_element_type",
    "pad": "operand padding_value padding_config",
    "reduce": "operands init_values computation dimensions",
    "reduce_precision": "operand exponent_bits mantissa_bits",
    "reduce_scatter": "operand computation scatter_dimension shard_count replica_groups channel_id",
    "reduce_window": "operands init_values computation window_dimensions window_strides base_dilations "
    "window_dilations padding",
    "reshape": "operand dimensions",
    "rev": "operand dimensions",
    "rng_bit_generator": "algorithm initial_state shape",
    "rng_normal": "mu sigma shape",
    "rng_uniform": "a b shape",
    "scatter": "operands scatter_indices updates update_computation index_vector_dim update_window_dims "
    "inserted_window_dims scatter_dims_to_operand_dims indices_are_sorted unique_indices",
    "select": "pred on_true on_false",
    "select_and_scatter": "operand select window_dimensions window_strides padding source init_value scatter",
    "send": "operand channel_handle",
    "set_dimension_size": "operand size dimension",
    "slice": "operand start_indices limit_indices strides",
    "sort": "operands comparator dimension is_stable",
    "top_k": "operand k largest",
    "transpose": "operand permutation",
    "triangular_solve": "a b left_side lower unit_diagonal transpose_a",
    "while_": "condition body init",
}
METHODS = {"infeed": "shape", "iota": "shape iota_dimension", "recv": "shape channel_handle", "replica_id": ""}


@pytest.mark.parametrize("name", TABLES)
def test_functions(name: str) -> None:
    wanted = TABLES[name].split()
    assert list(inspect.signature(getattr(sx, name)).parameters)[: len(wanted)] == wanted


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_builder(name: str) -> None:
    wanted = METHODS[name].split()
    assert list(inspect.signature(getattr(sx.XlaBuilder, name)).parameters)[1 : 1 + len(wanted)] == wanted
