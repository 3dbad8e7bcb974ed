"""Names of operations in numpy, JAX, PyTorch and StableHLO, and how each is written here.

A text is an expression on `x` and `y` (f32[2,3]), `v` (f32[3]), `w` (f32[3,4]), `m` (pred[2,3]), `i` and `j`
(s32[2,3]), `p` (pred[]), `k` (s32[]) and the builder `b`; the tests run each and compare it with what numpy makes of
the name.
"""

from __future__ import annotations

_ROW_MAX = "sx.reduce(x, -np.inf, sx.max, (1,))"

#: Names that mean the same, and the expression.
ROWS: tuple[tuple[str, str], ...] = (
    # reductions and scans
    ("sum reduce_sum nansum", "sx.reduce(x, 0.0, sx.add, (0,))"),
    ("prod reduce_prod", "sx.reduce(x, 1.0, sx.mul, (0,))"),
    ("amax reduce_max", "sx.reduce(x, -np.inf, sx.max, (0,))"),
    ("amin reduce_min", "sx.reduce(x, np.inf, sx.min, (0,))"),
    ("mean average", "sx.reduce(x, 0.0, sx.add, (0,)) / x.shape.dimensions[0]"),
    ("var", "sx.batch_norm_training(x, v, v, 0.0, 1)[2]"),
    ("std", "sx.sqrt(sx.batch_norm_training(x, v, v, 0.0, 1)[2])"),
    ("norm", "sx.sqrt(sx.reduce_all(x * x, 0.0, sx.add))"),
    ("any reduce_or", "sx.reduce(m, False, sx.or_, (0,))"),
    ("all reduce_and", "sx.reduce(m, True, sx.and_, (0,))"),
    ("count_nonzero", 'sx.reduce(sx.convert_element_type(x != 0, "s32"), 0, sx.add, (0,))'),
    ("median", "sx.sort(x, lambda a, c: a < c, 1)[:, 1]"),
    ("logsumexp", f"(t := {_ROW_MAX}) + sx.log(sx.reduce(sx.exp(sx.sub(x, t, (0,))), 0.0, sx.add, (1,)))"),
    ("argmax", "sx.reshape(sx.top_k(x, 1)[1], (2,))"),
    ("argmin", "sx.reshape(sx.top_k(x, 1, largest=False)[1], (2,))"),
    ("argsort", "sx.sort((x, b.iota(sx.s32[2, 3], 1)), lambda a, c, i, j: a < c, 1, is_stable=True)[1]"),
    ("cumsum", "sx.scan(x, sx.broadcast(b.constant(0.0), (3,)), lambda a, c: (a + c, a + c), 0)[0]"),
    ("cumprod", "sx.scan(x, sx.broadcast(b.constant(1.0), (3,)), lambda a, c: (a * c, a * c), 0)[0]"),
    # element-wise
    ("subtract", "sx.sub(x, y)"),
    ("multiply", "sx.mul(x, y)"),
    ("divide true_divide", "sx.div(x, y)"),
    ("floor_divide floordiv", "sx.floor(x / y)"),
    ("mod", "sx.rem(sx.rem(x, y) + y, y)"),
    ("remainder fmod", "sx.rem(x, y)"),
    ("power float_power", "sx.pow(x, y)"),
    ("maximum", "sx.max(x, y)"),
    ("minimum", "sx.min(x, y)"),
    ("negative negate", "sx.neg(x)"),
    ("absolute fabs", "sx.abs(x)"),
    ("exponential", "sx.exp(x)"),
    ("exponential_minus_one", "sx.expm1(x)"),
    ("exp2", "sx.pow(2.0, x)"),
    ("log_plus_one", "sx.log1p(x)"),
    ("log2", "sx.log(x) / np.log(2)"),
    ("log10", "sx.log(x) / np.log(10)"),
    ("sine", "sx.sin(x)"),
    ("cosine", "sx.cos(x)"),
    ("arcsin", "sx.asin(x)"),
    ("arccos", "sx.acos(x)"),
    ("arctan", "sx.atan(x)"),
    ("arctan2", "sx.atan2(x, y)"),
    ("arcsinh", "sx.asinh(x)"),
    ("arccosh", "sx.acosh(x)"),
    ("arctanh", "sx.atanh(x)"),
    ("sigmoid expit", "sx.logistic(x)"),
    ("relu", "sx.max(x, 0.0)"),
    ("leaky_relu", "sx.select(x > 0, x, x * 0.01)"),
    ("elu", "sx.select(x > 0, x, sx.expm1(x))"),
    ("silu swish", "x * sx.logistic(x)"),
    ("gelu", "x * (sx.erf(x / np.sqrt(2)) + 1) / 2"),
    ("softplus", "sx.log1p(sx.exp(x))"),
    ("softmax", f"sx.div(e := sx.exp(sx.sub(x, {_ROW_MAX}, (0,))), sx.reduce(e, 0.0, sx.add, (1,)), (0,))"),
    (
        "log_softmax",
        f"sx.sub(t := sx.sub(x, {_ROW_MAX}, (0,)), sx.log(sx.reduce(sx.exp(t), 0.0, sx.add, (1,))), (0,))",
    ),
    ("batch_norm", "sx.batch_norm_training(x, v, v, 1e-5, 1)[0]"),
    ("sinc", "sx.select(x == 0, 1.0, sx.sin(np.pi * x) / (np.pi * x))"),
    ("hypot", "sx.sqrt(x * x + y * y)"),
    ("rint", "sx.round_nearest_even(x)"),
    ("round_nearest_afz", "sx.round(x)"),
    ("trunc fix", "sx.sign(x) * sx.floor(sx.abs(x))"),
    ("clip hardtanh", "sx.clamp(-1.0, x, 1.0)"),
    ("gammaln", "sx.lgamma(x)"),
    ("equal", "sx.eq(x, y)"),
    ("not_equal", "sx.ne(x, y)"),
    ("greater", "sx.gt(x, y)"),
    ("greater_equal", "sx.ge(x, y)"),
    ("less", "sx.lt(x, y)"),
    ("less_equal", "sx.le(x, y)"),
    ("isfinite", "sx.is_finite(x)"),
    ("isnan", "sx.is_nan(x)"),
    ("isinf", "sx.is_inf(x)"),
    ("logical_and", "sx.and_(m, p)"),
    ("logical_or", "sx.or_(m, p)"),
    ("logical_xor", "sx.xor(m, p)"),
    ("logical_not", "sx.not_(m)"),
    ("bitwise_and", "sx.and_(i, j)"),
    ("bitwise_or", "sx.or_(i, j)"),
    ("bitwise_xor", "sx.xor(i, j)"),
    ("bitwise_not invert", "sx.not_(i)"),
    ("left_shift", "sx.shift_left(i, j)"),
    ("right_shift", "sx.shift_right_arithmetic(i, j)"),
    ("popcnt bitwise_count", "sx.population_count(i)"),
    ("count_leading_zeros", "sx.clz(i)"),
    ("where select_n", "sx.select(m, x, y)"),
    ("conjugate", "sx.conj(sx.complex(x, y))"),
    ("nextafter", "sx.next_after(x, y)"),
    # shapes
    ("zeros zeros_like", "sx.broadcast(b.constant(0.0), (2, 3))"),
    ("ones ones_like", "sx.broadcast(b.constant(1.0), (2, 3))"),
    ("full full_like", "sx.broadcast(b.constant(7.0), (2, 3))"),
    ("arange", "b.iota(sx.s32, 6)"),
    ("linspace", 'sx.convert_element_type(b.iota(sx.s32, 5), "f32") / 4'),
    ("eye identity", 'sx.convert_element_type(b.iota(sx.s32[3, 3], 0) == b.iota(sx.s32[3, 3], 1), "f32")'),
    ("one_hot", 'sx.convert_element_type(sx.eq(b.iota(sx.s32[3, 4], 1), i[0], (0,)), "f32")'),
    ("tril", "sx.select(b.iota(sx.s32[2, 3], 0) >= b.iota(sx.s32[2, 3], 1), x, 0.0)"),
    ("triu", "sx.select(b.iota(sx.s32[2, 3], 0) <= b.iota(sx.s32[2, 3], 1), x, 0.0)"),
    ("array asarray as_tensor tensor", "b.constant([[1.0, 2.0], [3.0, 4.0]])"),
    ("astype cast convert to", 'sx.convert_element_type(x, "s32")'),
    ("bitcast_convert", 'sx.bitcast_convert_type(x, "u32")'),
    ("ravel flatten", "sx.reshape(x, (6,))"),
    ("squeeze", "sx.reshape(x[:1], (3,))"),
    ("expand_dims unsqueeze", "sx.reshape(x, (2, 1, 3))"),
    ("swapaxes moveaxis permute permute_dims matrix_transpose", "sx.transpose(x, (1, 0))"),
    ("broadcast_to expand", "sx.broadcast_in_dim(v, (2, 3), (1,))"),
    ("concat cat append vstack", "sx.concatenate((x, y), 0)"),
    ("hstack", "sx.concatenate((x, y), 1)"),
    ("stack", "sx.concatenate((sx.reshape(x, (1, 2, 3)), sx.reshape(y, (1, 2, 3))), 0)"),
    ("split chunk", "[x[:, :1], x[:, 1:]]"),
    ("tile", "sx.concatenate((x, x), 0)"),
    ("repeat", "sx.reshape(sx.broadcast_in_dim(x, (2, 2, 3), (0, 2)), (4, 3))"),
    ("flip reverse", "sx.rev(x, (0,))"),
    ("roll", "sx.concatenate((x[1:], x[:1]), 0)"),
    ("take index_select", "sx.torch_index_select(v, k, 0)"),
    ("slice_update", "sx.dynamic_update_slice(x, y[:, :1], (0, 2))"),
    # products
    ("matmul mm", "sx.dot(x, w)"),
    ("einsum tensordot", "sx.dot_general(x, w, sx.DotDimensionNumbers((1,), (0,)))"),
    (
        "bmm",
        "sx.dot_general(sx.reshape(x, (1, 2, 3)), sx.reshape(w, (1, 3, 4)), "
        "sx.DotDimensionNumbers((2,), (1,), (0,), (0,)))",
    ),
    ("outer", "sx.dot_general(v, v, sx.DotDimensionNumbers())"),
    # control flow
    ("cond if_ ifelse", "sx.conditional(p, x, sx.sin, x, lambda a: a * 2)"),
    ("switch case case_", "sx.conditional(k, [sx.sin, sx.cos], [x, x])"),
    ("fori_loop for_", "sx.while_(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] + y), (b.constant(0), x))[1]"),
    ("while_loop", "sx.while_(lambda a: sx.reduce_all(a, 0.0, sx.add) < 9, lambda a: a + 1, x)"),
    # several devices
    ("psum", "sx.all_reduce(x, sx.add)"),
    ("pmean", "sx.all_reduce(x, sx.add) / sx.all_reduce(b.constant(1.0), sx.add)"),
    ("pmax", "sx.all_reduce(x, sx.max)"),
    ("pmin", "sx.all_reduce(x, sx.min)"),
    ("ppermute", "sx.collective_permute(x, [(0, 0)])"),
    ("psum_scatter", "sx.reduce_scatter(x, sx.add, 0, 1)"),
    ("axis_index", "b.replica_id()"),
    # random numbers
    ("normal randn", "sx.rng_normal(b.constant(0.0), b.constant(1.0), sx.f32[2, 3])"),
    ("uniform rand random", "sx.rng_uniform(b.constant(0.0), b.constant(1.0), sx.f32[2, 3])"),
)

#: Element types; `x.dtype` and the like are in `ATTRIBUTES`.
TYPES = {
    **{f"float{bits}": f"sx.f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"sx.s{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"sx.u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"i{bits}": f"sx.s{bits}" for bits in (4, 8, 16, 32, 64)},
    "bfloat16": "sx.bf16",
    "complex64": "sx.c64",
    "complex128": "sx.c128",
    "bool": "sx.pred",
    "bool_": "sx.pred",
    "half": "sx.f16",
    "double": "sx.f64",
    "int": "sx.s32",
    "float": "sx.f32",
}

#: What has no operation here, and what to do.
WAYS = {
    **dict.fromkeys(("grad", "value_and_grad", "vjp", "jvp", "backward"), "jax.grad, by stablexla.interop.jax.jit"),
    "pmap": "sx.compile(b.build(root), num_replicas=N); jax.shard_map, by stablexla.interop.jax.jit",
    "vmap": "jax.vmap, by stablexla.interop.jax.jit",
    "jit": "sx.compile(b.build(root)); a function of JAX by stablexla.interop.jax.jit",
}

#: Attributes and methods of arrays elsewhere that have another meaning than the function of that name, for an op `x`.
ATTRIBUTES = {
    **{name: f'sx.convert_element_type(x, "{type_.removeprefix("sx.")}")' for name, type_ in TYPES.items()},
    "dtype": "x.element_type",
    "ndim": "x.shape.rank",
    "size": "x.shape.size",
    "max": "sx.reduce(x, -np.inf, sx.max, (0,))",
    "min": "sx.reduce(x, np.inf, sx.min, (0,))",
    "at": "sx.dynamic_update_slice(x, y[:, :1], (0, 2))",
    "view": "sx.reshape(x, (3, 2))",
    **dict.fromkeys(("item", "tolist", "numpy"), "sx.compile(b.build(x)), which runs the program for its value"),
}

OTHER_NAMES: dict[str, str] = {name: text for names, text in ROWS for name in names.split()} | TYPES | WAYS
"""Every name, and what to write."""
