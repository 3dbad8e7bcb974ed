"""Functions of JAX in which no array is computed from arrays."""

from __future__ import annotations

_TYPES = "about element types"
_SHAPES = "about shapes, known when it is traced"
_TEXT = "about text or files"
_HOST = "runs in Python, outside of what can be traced"
_DEVICES = "for several devices only"
_ALIAS = "a type for annotations"

REASONS = {
    **{
        f"jax.numpy.{name}": _TYPES
        for name in ("can_cast", "dtype", "isdtype", "issubdtype", "promote_types", "result_type", "finfo", "iinfo")
    },
    **{
        f"jax.numpy.{name}": _SHAPES
        for name in ("broadcast_shapes", "einsum_path", "isscalar", "iterable", "ndim", "shape", "size", "iscomplexobj")
    },
    "jax.numpy.isrealobj": _SHAPES,
    **{
        f"jax.numpy.{name}": _TEXT
        for name in (
            "array_repr",
            "array_str",
            "fromfile",
            "fromstring",
            "get_printoptions",
            "load",
            "printoptions",
            "save",
            "savez",
            "set_printoptions",
        )
    },
    **{f"jax.numpy.{name}": _HOST for name in ("frombuffer", "fromiter", "from_dlpack", "trim_zeros")},
    **{
        f"jax.lax.{name}": _SHAPES
        for name in (
            "axis_size",
            "broadcast_shapes",
            "conv_dimension_numbers",
            "conv_general_permutations",
            "conv_general_shape_tuple",
            "conv_shape_tuple",
            "conv_transpose_shape_tuple",
            "padtype_to_pads",
            "reduce_window_shape_tuple",
            "shape_as_value",
        )
    },
    "jax.lax.dtype": _TYPES,
    **{
        f"jax.lax.{name}": _ALIAS
        for name in ("ConvGeneralDilatedDimensionNumbers", "DotDimensionNumbers", "PrecisionLike")
    },
    "jax.lax.psend": _DEVICES,
    "jax.lax.precv": _DEVICES,
    "jax.lax.pbroadcast": _DEVICES,
    "jax.lax.psum_scatter_start": _DEVICES,
    "jax.lax.pcast": "about types inside of `jax.shard_map`",
    "jax.lax.ragged_all_to_all": _DEVICES,
    "jax.lax.with_sharding_constraint": "about devices; `tests/interop/test_jax.py` has it",
    "jax.random.Key": _ALIAS,
    "jax.random.key_dtype": _TYPES,
    "jax.random.key_impl": _TYPES,
    "jax.nn.get_scaled_dot_general_config": "makes a configuration",
    "jax.nn.scaled_dot_general": "needs cuDNN",
    "jax.nn.scaled_matmul": "not for the CPU",
}
