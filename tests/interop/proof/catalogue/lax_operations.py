"""Calls of `jax.lax`: operations on arrays."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, calls_for, through

F, S, C, B = v.reals, v.integers, v.complexes, v.booleans
ALL = (F, S, C, B)

_GATHER = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_SCATTER = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
_NHWC = ("NHWC", "HWIO", "NHWC")
_IMAGES, _KERNEL = F(2, 3, 9, 8), F(4, 3, 3, 2)
_CONTRACT = (((1,), (0,)), ((), ()))
_BATCHED = (((2,), (1,)), ((0,), (0,)))


def _scatters(unique: bool = False) -> list[Call]:
    """Rows that are changed, two of them the same one unless `unique`, one outside of the array."""
    rows = np.array([[4], [0], [7], [2]] if unique else [[4], [0], [7], [0]], np.int32)
    return [
        call(F(5, 3), rows, F(4, 3), _SCATTER),
        call(S(5, 3), rows, S(4, 3), _SCATTER, mode="clip" if not unique else None),
        call(v.reals(5, 3, of=v.BF16), rows, v.reals(4, 3, of=v.BF16), _SCATTER, mode="drop"),
    ]


def _reductions(*kinds: object) -> list[Call]:
    return [call(kind(3, 40), (1,)) for kind in kinds] + [call(kinds[0](2, 3, 4), (0, 2))]  # type: ignore[operator]


def _cumulative(name: str) -> list[Call]:
    kinds = {"cumlogsumexp": (F,), "cummax": (F, S), "cummin": (F, S)}.get(name, (F, S, C))
    return [*calls_for(kinds, 3, 20), call(F(3, 20), axis=1, reverse=True), call(v.unit(40, of=v.BF16))]


_BY_NAME: dict[str, list[Call]] = {
    **{name: [call(kind(3, 9), 1, np.int32) for kind in (F, S, B)] for name in ("argmax", "argmin")},
    "approx_max_k": [call(F(3, 40), 4, recall_target=1.0)],
    "approx_min_k": [call(F(3, 40), 4, recall_target=1.0)],
    "batch_matmul": [call(F(2, 3, 4), F(2, 4, 5)), call(C(2, 3, 4), C(2, 4, 5))],
    "bitcast_convert_type": [
        call(F(3, 4), np.int32),
        call(F(3, 4), np.uint8),
        call(v.naturals(3, 4, of=np.uint8), np.int32),
        call(v.reals(4, of=v.BF16), np.int16),
    ],
    "broadcast": [call(kind(3), (2, 4)) for kind in ALL],
    "broadcast_in_dim": [call(kind(3), (2, 3, 4), (1,)) for kind in ALL],
    "broadcast_to_rank": [call(F(3), 3)],
    "broadcasted_iota": [call(np.int32, (3, 4), 1), call(np.float32, (3, 4), 0)],
    "clamp": [call(-0.5, F(3, 4), 0.5), call(S(3, 4), S(3, 4, seed=1), S(3, 4, seed=2))],
    "collapse": [call(F(2, 3, 4), 1, 3)],
    "concatenate": [call([kind(3, 4), kind(2, 4)], 0) for kind in ALL],
    "conv": [call(_IMAGES, _KERNEL, (1, 1), "SAME"), call(_IMAGES, _KERNEL, (2, 1), "VALID")],
    "conv_general_dilated": [
        call(_IMAGES, _KERNEL, (1, 2), ((1, 1), (0, 2)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)),
        call(F(2, 9, 8, 4), F(3, 2, 2, 6), (1, 1), "SAME", dimension_numbers=_NHWC, feature_group_count=2),
        call(F(4, 9, 8, 3), F(3, 2, 3, 6), (1, 1), "VALID", dimension_numbers=_NHWC, batch_group_count=2),
        call(v.complexes(2, 3, 9), v.complexes(4, 3, 3), (1,), "SAME"),
        call(v.reals(2, 3, 9, of=v.BF16), v.reals(4, 3, 3, of=v.BF16), (1,), "SAME"),
        call(S(2, 3, 9), S(4, 3, 3), (1,), "SAME", preferred_element_type=np.int32),
        call(F(1, 2, 5, 6, 7), F(3, 2, 2, 3, 2), (1, 2, 1), "SAME"),
    ],
    "conv_general_dilated_local": [call(F(2, 3, 6), F(4, 9, 4), (1,), "VALID", (3,))],
    "conv_general_dilated_patches": [call(_IMAGES, (3, 2), (1, 1), "SAME")],
    "conv_transpose": [
        call(F(2, 5, 4, 3), F(3, 2, 3, 6), (2, 2), "SAME"),
        call(F(2, 5, 3), F(3, 3, 6), (2,), "VALID", transpose_kernel=False),
    ],
    "conv_with_general_padding": [call(_IMAGES, _KERNEL, (1, 1), ((1, 1), (0, 1)), None, None)],
    "convert_element_type": [call(kind(3, 4), t) for kind in (F, S, B) for t in (np.float32, np.int32, np.bool_)]
    + [call(F(3, 4), v.BF16), call(v.reals(4, of=v.BF16), np.float32), call(S(4), np.complex64)]
    + [call(F(9) * np.float32(1e3), t) for t in (jnp.float8_e4m3fn, jnp.float8_e5m2, np.float16, np.uint8, np.int8)],
    **{name: _cumulative(name) for name in ("cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum")},
    "dce_sink": [through(lambda f, x: (f(x), x)[1], F(3))],
    "dot": [call(F(3, 4), F(4, 5)), call(S(3, 4), S(4)), call(C(4), C(4))],
    "dot_general": [
        call(F(2, 3, 4), F(2, 4, 5), _BATCHED),
        call(C(2, 3, 4), C(2, 4, 5), _BATCHED),
        call(S(3, 4), S(4, 5), _CONTRACT),
        call(v.reals(3, 40, of=v.BF16), v.reals(40, 5, of=v.BF16), _CONTRACT, preferred_element_type=np.float32),
        call(v.integers(3, 4, of=np.int8), v.integers(4, 5, of=np.int8), _CONTRACT, preferred_element_type=np.int32),
        call(F(3, 40), F(40, 5), _CONTRACT, precision=lax.Precision.HIGHEST),
        call(F(3, 40), F(40, 5), _CONTRACT, precision=lax.DotAlgorithmPreset.F32_F32_F32),
        call(F(3, 40), F(40, 5), _CONTRACT, precision=lax.DotAlgorithmPreset.BF16_BF16_F32),
    ],
    "dynamic_index_in_dim": [call(F(3, 4), np.array(1), 1), call(S(3, 4), np.array(-1), 0, keepdims=False)],
    "dynamic_slice": [call(F(5, 6), (np.array(2), np.array(4)), (2, 3)), call(C(9), (np.array(-2),), (3,))],
    "dynamic_slice_in_dim": [call(F(5, 6), np.array(3), 3, 1)],
    "dynamic_update_index_in_dim": [call(F(3, 4), F(3), np.array(2), 1)],
    "dynamic_update_slice": [call(F(5, 6), F(2, 3), (np.array(2), np.array(4))), call(B(9), B(3), (np.array(-2),))],
    "dynamic_update_slice_in_dim": [call(F(5, 6), F(5, 2), np.array(5), 1)],
    "empty": [call((2, 3), np.float32)],
    "expand_dims": [call(F(3, 4), (0, 2))],
    "fft": [
        call(C(3, 8), "fft", (8,)),
        call(C(3, 12), "ifft", (12,)),
        call(F(3, 10), "rfft", (10,)),
        call(C(3, 6), "irfft", (10,)),
        call(C(3, 7, 5), "fft", (7, 5)),
    ],
    "full": [call((2, 3), 1.5), call((2, 3), np.array(3, np.int32), np.float32)],
    "full_like": [call(F(3, 4), 2.0), call(S(3, 4), 1.5, np.float32)],
    "gather": [
        call(F(5, 3), np.array([[4], [0], [7], [-1]], np.int32), _GATHER, (1, 3), mode=mode)
        for mode in ("clip", "fill")
    ]
    + [call(kind(5, 3), np.array([[4], [0]], np.int32), _GATHER, (1, 3)) for kind in (S, C, B)],
    "index_in_dim": [call(F(3, 4), -1, 1)],
    "index_take": [call(F(3, 4), (np.array([1, 0], np.int32),), (0,))],
    "integer_pow": [call(F(3, 4), 3), call(v.positive(4), -2), call(S(4), 5), call(C(4), 3)],
    "iota": [call(np.int32, 5), call(np.float32, 5)],
    "mulhi": [call(S(9) * 300_000_000, S(9) * 200_000_000), call(*[v.naturals(9, below=2**31, of=np.uint32)] * 2)],
    "pad": [
        call(F(3, 4), np.array(1.5, np.float32), ((1, 0, 0), (0, 2, 1))),
        call(S(5, 4), np.array(7, np.int32), ((-1, -1, 0), (2, -1, 2))),
        call(C(3), np.array(1j, np.complex64), ((1, 2, 1),)),
    ],
    "pow": [call(v.positive(3, 4), F(3, 4)), call(C(4), C(4)), call(F(4), S(4))],
    "reduce": [
        call(F(3, 9), np.array(0, np.float32), lambda a, b: a + b, (1,)),
        call(
            (F(9), S(9)),
            (np.array(0, np.float32), np.array(1, np.int32)),
            lambda a, b: (a[0] + b[0], a[1] * b[1]),
            (0,),
        ),
    ],
    "reduce_and": _reductions(B, S),
    "reduce_or": _reductions(B, S),
    "reduce_xor": _reductions(B, S),
    "reduce_max": _reductions(F, S, B),
    "reduce_min": _reductions(F, S, B),
    "reduce_prod": _reductions(F, S, C),
    "reduce_sum": _reductions(F, S, C),
    "reduce_precision": [call(F(3, 4), 5, 10), call(F(3, 4), 8, 7), call(F(3, 4), 4, 3)],
    "reduce_window": [
        call(F(9, 8), np.array(-np.inf, np.float32), lax.max, (3, 2), (2, 1), "SAME"),
        call(F(9, 8), np.array(0, np.float32), lax.add, (3, 3), (1, 1), "VALID"),
        call(S(9), np.array(2**31 - 1, np.int32), lax.min, (3,), (1,), ((1, 1),), window_dilation=(2,)),
        call(F(12), np.array(1, np.float32), lax.mul, (3,), (2,), "VALID", base_dilation=(2,)),
    ],
    "reshape": [call(kind(3, 4), (2, 6)) for kind in ALL],
    "rev": [call(kind(3, 4), (0, 1)) for kind in ALL],
    "rng_bit_generator": [
        call(np.arange(4, dtype=np.uint32), (3, 4)),
        call(np.arange(4, dtype=np.uint32), (5,), np.uint8),
        call(np.arange(4, dtype=np.uint32), (5,), algorithm=lax.RandomAlgorithm.RNG_PHILOX),
        call(np.arange(4, dtype=np.uint32), (5,), algorithm=lax.RandomAlgorithm.RNG_THREE_FRY),
    ],
    "rng_uniform": [
        through(lambda f, a, b: f(a, b, (30,)).shape[0] + a, np.array(0, np.float32), np.array(1, np.float32))
    ],
    "round": [call(F(3, 4) * 3), call(np.array([0.5, 1.5, -2.5], np.float32), lax.RoundingMethod.TO_NEAREST_EVEN)],
    **{f"scatter_{name}": _scatters() for name in ("add", "max", "min", "mul", "sub")},
    "scatter": _scatters(unique=True),
    "scatter_apply": [call(F(5, 3), np.array([[4], [0]], np.int32), jnp.sin, _SCATTER, update_shape=(2, 3))],
    "select": [call(B(3, 4), kind(3, 4), kind(3, 4, seed=1)) for kind in ALL],
    "select_n": [
        call(B(3, 4), F(3, 4), F(3, 4, seed=1)),
        call(v.naturals(9, below=3), F(9), F(9, seed=1), F(9, seed=2)),
    ],
    "shift_left": [call(S(3, 4), v.naturals(3, 4, below=40))],
    "shift_right_arithmetic": [call(S(3, 4), v.naturals(3, 4, below=40))],
    "shift_right_logical": [call(S(3, 4), v.naturals(3, 4, below=40))],
    "slice": [call(kind(5, 6), (1, 0), (4, 6), (1, 2)) for kind in ALL],
    "slice_in_dim": [call(F(5, 6), 1, -1, 2, 1)],
    "sort": [
        *calls_for(ALL, 3, 9),
        call((v.naturals(9, below=3), F(9)), num_keys=1),
        call((v.naturals(9, below=3), F(9)), num_keys=2),
    ],
    "sort_key_val": [call(F(3, 9), S(3, 9)), call(v.naturals(9, below=3), F(9))],
    "split": [call(F(5, 4), (2, 3))],
    "squeeze": [call(F(3, 1, 4), (1,))],
    "tile": [call(F(3, 4), (2, 1))],
    "top_k": [call(F(3, 9), 4), call(S(9), 3), call(v.reals(9, of=v.BF16), 3)],
    "transpose": [call(kind(2, 3, 4), (2, 0, 1)) for kind in ALL],
    "ragged_dot": [call(F(9, 4), F(3, 4, 5), np.array([2, 4, 3], np.int32))],
    "ragged_dot_general": [
        call(
            F(9, 4),
            F(3, 4, 5),
            np.array([2, 4, 3], np.int32),
            lax.RaggedDotDimensionNumbers(
                dot_dimension_numbers=(((1,), (1,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[0]
            ),
        )
    ],
    "scaled_dot": [
        call(
            F(3, 64),
            F(64, 5),
            lhs_scale=v.positive(3, 2),
            rhs_scale=v.positive(2, 5),
            preferred_element_type=np.float32,
        )
    ],
    "random_gamma_grad": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "after_all": [through(lambda f, x: (f(lax.create_token()), x)[1], F(3))],
    "create_token": [through(lambda f, x: (f(), x)[1], F(3))],
    "optimization_barrier": [call(F(3, 4)), call((F(3), S(2)))],
    "zeta": [call(v.between(1.5, 5.0, 3, 4), v.positive(3, 4))],
    "polygamma": [call(v.naturals(3, 4, below=4, of=np.float32), v.positive(3, 4))],
    "igamma": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "igammac": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "igamma_grad_a": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "betainc": [call(v.positive(3, 4), v.positive(3, 4, seed=1), v.unit(3, 4))],
    "acosh": [call(v.between(1.0, 9.0, 3, 4)), call(C(3, 4)), call(v.between(1.0, 9.0, 4, of=v.BF16))],
}
ENTRIES = {f"jax.lax.{name}": calls for name, calls in _BY_NAME.items()}
