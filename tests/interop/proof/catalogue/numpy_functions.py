"""Calls of `jax.numpy` and `jax.numpy.fft` that a signature does not tell."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, calls_for, through

F, S, C, B = v.reals, v.integers, v.complexes, v.booleans
ALL = (F, S, C, B)
ORDERED = (F, S, B)

_BY_NAME: dict[str, list[Call]] = {
    # ---- making arrays
    "arange": [call(5), call(1.0, 3.0, 0.25), call(10, 2, -3)],
    "array": calls_for(ALL, 3, 4),
    "asarray": calls_for(ALL, 3, 4),
    "bartlett": [call(7)],
    "blackman": [call(7)],
    "empty": [call((2, 3))],
    "eye": [call(3), call(3, 5, k=1, dtype="int32")],
    "fft.fftfreq": [call(7), call(8, d=0.5)],
    "fft.rfftfreq": [call(7), call(8, d=0.5)],
    "full": [call((2, 3), 1.5), call((2, 3), v.np.array(3, np.int32))],
    "fromfunction": [call(lambda i, j: i * 2 + j, (3, 4))],
    "geomspace": [call(v.np.array(1.0, np.float32), v.np.array(100.0, np.float32), 7)],
    "hamming": [call(7)],
    "hanning": [call(7)],
    "identity": [call(4)],
    "indices": [call((2, 3)), call((2, 3), sparse=True)],
    "kaiser": [call(7, 3.5)],
    "linspace": [call(F(3), v.positive(3), 6), call(0.0, 1.0, 9), call(0, 10, 4, endpoint=False)],
    "logspace": [call(v.unit(3), v.positive(3), 6)],
    "ones": [call((2, 3))],
    "tri": [call(4), call(3, 5, 1)],
    "tril_indices": [call(4), call(3, 1, 5)],
    "triu_indices": [call(4), call(3, 1, 5)],
    "diag_indices": [call(4)],
    "zeros": [call((2, 3))],
    "meshgrid": [call(F(3), F(4)), call(S(2), S(3), S(2), indexing="ij")],
    "vander": [call(F(4)), call(S(4), 3, increasing=True), call(C(4))],
    "ix_": [call(S(3), S(2))],
    # ---- functions of functions
    "apply_along_axis": [call(lambda row: row * row.sum(), 1, F(3, 4))],
    "apply_over_axes": [call(jnp.sum, F(3, 4, 2), (0, 2))],
    "frompyfunc": [through(lambda f, x, y: f(lambda a, b: a * b + a, nin=2, nout=1)(x, y), F(3, 4), F(4))],
    "piecewise": [call(F(3, 4), [B(3, 4)], [lambda x: x * 2, lambda x: x - 1])],
    "vectorize": [
        through(lambda f, x, y: f(lambda a, b: a @ b, signature="(n),(n)->()")(x, y), F(3, 4), F(4)),
        through(lambda f, x, y: f(lambda a, b: a + b)(x, y), F(3, 4), F(4)),
    ],
    # ---- several arrays
    "atleast_1d": [call(F(3, 4)), call(np.array(2.0, np.float32))],
    "atleast_2d": [call(F(3)), call(np.array(2.0, np.float32))],
    "atleast_3d": [call(F(3)), call(F(3, 4))],
    "block": [call([[F(2, 2), F(2, 3)], [F(1, 2), F(1, 3)]])],
    "broadcast_arrays": [call(F(3, 1), F(4)), call(S(3, 1), C(4))],
    "choose": [call(v.naturals(4, below=3), [F(4), F(4, seed=1), F(4, seed=2)], mode="clip")],
    "column_stack": [call((F(3), F(3, 2)))],
    "concatenate": [call((kind(3, 4), kind(2, 4, seed=1))) for kind in ALL] + [call((F(3, 4), S(3, 2)), axis=1)],
    "concat": [call((F(3, 4), F(2, 4))), call((F(3, 4), S(3, 2)), axis=1)],
    "dstack": [call((F(3, 4), F(3, 4, seed=1)))],
    "hstack": [call((F(3, 4), F(3, 2)))],
    "stack": [call((kind(3, 4), kind(3, 4, seed=1)), axis=1) for kind in ALL],
    "vstack": [call((F(3, 4), F(2, 4)))],
    "einsum": [
        call("ij,jk->ik", F(3, 4), F(4, 5)),
        call("bij,bkj->bik", F(2, 3, 4), F(2, 5, 4)),
        call("ii->i", S(4, 4)),
        call("ij,jk,kl->il", C(3, 4), C(4, 2), C(2, 3)),
        call("i,j->ij", v.reals(3, of=v.BF16), v.reals(4, of=v.BF16)),
    ],
    "select": [call([B(3, 4), B(3, 4, seed=1)], [F(3, 4), F(3, 4, seed=1)], 0.5)],
    "lexsort": [call((v.naturals(9, below=3), F(9)))],
    # ---- shapes
    "array_split": [call(F(7, 3), 3), call(S(7), [2, 5])],
    "split": [call(F(6, 3), 3), call(S(7), [2, 5])],
    "dsplit": [call(F(2, 3, 4), 2)],
    "hsplit": [call(F(3, 4), 2)],
    "vsplit": [call(F(4, 3), 2)],
    "broadcast_to": [*calls_for(ALL, 4, shape=(3, 4)), call(F(3, 1), (2, 3, 4))],
    "expand_dims": [call(F(3, 4), 1), call(S(3), (0, 2))],
    "moveaxis": [call(F(2, 3, 4), 0, 2), call(S(2, 3, 4), (0, 1), (1, 2))],
    "rollaxis": [call(F(2, 3, 4), 2), call(S(2, 3, 4), 2, 1)],
    "permute_dims": [call(F(2, 3, 4), (2, 0, 1))],
    "pad": [
        call(F(3, 4), 1),
        call(S(3, 4), ((1, 0), (0, 2)), constant_values=7),
        *[call(F(3, 4), 2, mode=m) for m in ("edge", "linear_ramp", "maximum", "mean", "median", "minimum")],
        *[call(F(3, 4), 2, mode=m) for m in ("reflect", "symmetric", "wrap")],
    ],
    "repeat": [call(F(3, 4), 2), call(S(3), v.naturals(3, below=3), total_repeat_length=5), call(F(3, 2), 2, axis=0)],
    "reshape": [*calls_for(ALL, 3, 4, shape=(2, 6)), call(F(3, 4), (4, -1), order="F")],
    "ravel": [*calls_for(ALL, 3, 4), call(F(3, 4), order="F")],
    "roll": [call(F(3, 4), 2), call(S(3, 4), (1, -1), axis=(0, 1)), call(F(5), np.array(2))],
    "rot90": [call(F(3, 4)), call(S(2, 3, 4), k=3, axes=(1, 2))],
    "squeeze": [call(F(3, 1, 4)), call(S(1, 3, 1), 0)],
    "tile": [call(F(3), (2, 2)), call(S(2, 3), 3)],
    "transpose": [*calls_for(ALL, 3, 4), call(F(2, 3, 4), (1, 2, 0))],
    "resize": [call(F(3, 4), (5, 3))],
    "unstack": [call(F(3, 4)), call(S(3, 4), axis=1)],
    # ---- indices
    "argwhere": [call(B(3, 4), size=5)],
    "bincount": [call(v.naturals(9, below=5), length=6), call(v.naturals(9, below=5), weights=F(9), length=5)],
    "compress": [call(B(3), F(3, 4), axis=0, size=2)],
    "delete": [call(F(5, 2), 1, axis=0), call(S(6), np.s_[1:4]), call(F(6), v.naturals(2), assume_unique_indices=True)],
    "diag_indices_from": [through(lambda f, a: a[f(a)], F(4, 4))],
    "digitize": [call(F(3, 4), v.increasing(5)), call(F(7), v.increasing(5), right=True)],
    "extract": [call(B(3, 4), F(3, 4), size=6)],
    "fill_diagonal": [call(F(4, 4), 5.0, inplace=False), call(S(3, 4), v.naturals(3), inplace=False)],
    "flatnonzero": [call(B(9), size=4)],
    "insert": [
        call(F(5), 2, 9.0),
        call(S(3, 4), np.array([0, 2]), 5, axis=1),
        call(F(4), v.naturals(2, below=4), F(2)),
    ],
    "interp": [
        call(v.between(-1, 4, 3, 4), v.increasing(6), F(6)),
        call(F(5), v.increasing(6), F(6), left=-1, right=9),
    ],
    "mask_indices": [call(3, jnp.triu, size=6)],
    "nonzero": [call(B(3, 4), size=5), call(F(9), size=12, fill_value=-1)],
    "place": [call(F(3, 4), B(3, 4), F(3), inplace=False)],
    "put": [call(F(9), v.naturals(3), F(3), inplace=False), call(S(9), v.naturals(2), 5, mode="clip", inplace=False)],
    "put_along_axis": [call(F(3, 4), v.naturals(3, 2, below=4), F(3, 2), 1, inplace=False)],
    "ravel_multi_index": [call((v.naturals(5, below=3), v.naturals(5, below=4)), (3, 4), mode="clip")],
    "unravel_index": [call(v.naturals(5, below=12), (3, 4))],
    "searchsorted": [
        call(v.increasing(9), F(3, 4)),
        call(v.increasing(9), F(5), side="right", method="sort"),
        call(np.sort(S(9)), S(4), method="compare_all"),
    ],
    "take": [
        call(F(3, 4), v.naturals(5, below=3), axis=0),
        call(S(9), v.integers(5, low=-12, high=12)),
        call(F(9), v.integers(5, low=-12, high=12), mode="wrap"),
        call(F(9), v.integers(5, low=-12, high=12), mode="clip"),
    ],
    "take_along_axis": [call(F(3, 4), v.naturals(3, 2, below=4), 1), call(S(3, 4), v.naturals(1, 4, below=3), 0)],
    "where": [call(B(3, 4), F(3, 4), F(4)), call(B(3, 1), S(3, 4), 1.5), call(B(9), size=4)],
    "tril_indices_from": [through(lambda f, a: a[f(a)], F(4, 4))],
    "triu_indices_from": [through(lambda f, a: a[f(a)], F(4, 4))],
    # ---- order and sets
    "argpartition": [
        through(lambda f, x: jnp.take_along_axis(x, f(x, 2), -1)[..., 2], F(3, 5)),
        through(lambda f, x: jnp.take_along_axis(x, f(x, 2), -1)[..., 2], S(3, 5)),
    ],
    "partition": [through(lambda f, x: f(x, 2)[..., 2], F(3, 5)), through(lambda f, x: jnp.sort(f(x, 2)), S(3, 5))],
    "argsort": [*calls_for(ALL, 3, 7), call(F(3, 7), axis=0, descending=True), call(v.reals(9, of=v.BF16))],
    "sort": [*calls_for(ALL, 3, 7), call(F(3, 7), axis=0, descending=True), call(v.reals(9, of=v.BF16))],
    "intersect1d": [
        call(v.naturals(8), v.naturals(8, seed=1), size=5),
        call(v.naturals(6), v.naturals(6, seed=1), size=6),
    ],
    "setdiff1d": [call(v.naturals(8), v.naturals(8, seed=1), size=5)],
    "setxor1d": [call(v.naturals(8), v.naturals(8, seed=1), size=5)],
    "union1d": [call(v.naturals(8), v.naturals(8, seed=1), size=12)],
    "isin": [call(v.naturals(8), v.naturals(3, seed=1)), call(F(3, 4), F(2)), call(S(5), S(9), method="sort")],
    "unique": [
        call(v.naturals(9, below=5), size=6),
        call(F(5), size=5),
        call(v.naturals(9, below=5), return_index=True, return_inverse=True, return_counts=True, size=6),
        call(v.naturals(5, 2, below=2), axis=0, size=4),
    ],
    **{
        f"unique_{what}": [call(v.naturals(9, below=5), size=6), call(F(5), size=5)]
        for what in ("all", "counts", "inverse", "values")
    },
    "histogram": [call(F(30), bins=5), call(F(30), v.increasing(6), weights=F(30))],
    "histogram2d": [call(F(30), F(30, seed=1), bins=4)],
    "histogramdd": [call(F(30, 2), bins=4)],
    "histogram_bin_edges": [call(F(30), bins=5)],
    # ---- statistics and sums
    **{
        name: [*calls_for((F, S), 3, 4), call(F(3, 4), axis=0, keepdims=True), call(v.unit(3, 40, of=v.BF16), axis=1)]
        for name in ("mean", "var", "std", "nanmean", "nanvar", "nanstd")
    },
    **{
        name: [*calls_for(ALL, 3, 40), call(F(3, 4), axis=0, keepdims=True), call(v.unit(3, 40, of=v.BF16), axis=1)]
        for name in ("sum", "prod", "nansum", "nanprod")
    },
    **{
        name: [*calls_for(ORDERED, 3, 4), call(F(3, 4), axis=1), call(v.reals(3, 4, of=v.BF16), axis=0)]
        for name in ("max", "min", "amax", "amin", "nanmax", "nanmin", "argmax", "argmin", "nanargmax", "nanargmin")
    },
    **{
        f"{nan}{name}": [
            call(F(3, 9), q, axis=1, method=m) for m in ("linear", "lower", "higher", "midpoint", "nearest")
        ]
        for nan in ("", "nan")
        for name, q in (("quantile", v.unit(3)), ("percentile", v.between(5, 95, 3)))
    },
    "average": [call(F(3, 4)), call(F(3, 4), axis=1, weights=v.positive(4))],
    "cov": [call(F(3, 9)), call(C(3, 9)), call(F(3, 9), aweights=v.positive(9), ddof=0)],
    "corrcoef": [call(F(3, 9)), call(C(3, 9))],
    "convolve": [call(F(9), F(4)), call(S(9), S(4), "same"), call(C(9), C(4), "valid")],
    "correlate": [call(F(9), F(4)), call(S(9), S(4), "same"), call(C(9), C(4), "valid")],
    "cross": [call(F(5, 3), F(5, 3, seed=1)), call(S(3), S(3, seed=1))],
    "diff": [*calls_for((F, S, C, B), 3, 5), call(F(9), n=2, prepend=1.0)],
    "ediff1d": [call(F(9)), call(S(9), to_begin=1, to_end=np.array([5, 6], np.int32))],
    "gradient": [call(F(9)), call(F(3, 4)), call(F(5, 4), 0.5, axis=0)],
    "trapezoid": [call(F(9)), call(F(3, 9), v.increasing(9))],
    "unwrap": [call(np.cumsum(F(3, 9), -1)), call(S(9), period=5)],
    # ---- products
    "dot": [call(kind(3, 4), kind(4, 5)) for kind in ALL] + [call(v.unit(3, 40, of=v.BF16), v.unit(40, 2, of=v.BF16))],
    "matmul": [
        *[call(kind(3, 4), kind(4, 5)) for kind in ALL],
        call(F(2, 3, 4), F(4, 5)),
        call(F(2, 1, 3, 4), F(3, 4, 2)),
        call(v.reals(3, 40, of=v.BF16), v.reals(40, 5, of=v.BF16)),
    ],
    "matvec": [call(F(2, 3, 4), F(4)), call(C(3, 4), C(4))],
    "vecmat": [call(F(3), F(2, 3, 4)), call(C(3), C(3, 4))],
    "kron": [call(F(2, 3), F(3, 2)), call(S(3), S(2))],
    "tensordot": [
        call(F(3, 4, 2), F(4, 2, 5)),
        call(C(3, 4), C(4, 3), axes=([0, 1], [1, 0])),
        call(S(3), S(2), axes=0),
    ],
    # ---- polynomials
    "poly": [call(F(4)), call(v.symmetric(4))],
    "polyadd": [call(F(4), F(3)), call(S(4), S(3))],
    "polydiv": [call(F(5), v.positive(3)), call(v.positive(3), v.positive(5))],
    "polyfit": [call(F(9), F(9, seed=1), 2), call(F(9), F(9, seed=1), 2, w=v.positive(9))],
    "polyint": [call(F(4)), call(F(4), m=2)],
    "polymul": [call(F(4), F(3)), call(S(4), S(3))],
    "roots": [call(v.positive(4), strip_zeros=False), call(v.complexes(4), strip_zeros=False)],
    # ---- bits and numbers
    "clip": [call(F(3, 4), -0.5, 0.5), call(S(3, 4), S(4), 3), call(F(3, 4), max=np.array(0.25, np.float32))],
    "ldexp": [call(F(3, 4), S(3, 4)), call(v.reals(4, of=v.BF16), S(4))],
    "frexp": [call(F(3, 4)), call(F(9) * np.float32(1e30)), call(v.reals(4, of=v.BF16))],
    "nextafter": [call(F(3, 4), F(3, 4, seed=1)), call(v.reals(4, of=v.BF16), v.reals(4, seed=1, of=v.BF16))],
    "packbits": [call(B(3, 17)), call(B(3, 17), axis=1, bitorder="little"), call(v.naturals(9, below=2, of=np.uint8))],
    "unpackbits": [
        call(v.naturals(3, 4, below=256, of=np.uint8)),
        call(v.naturals(5, below=256, of=np.uint8), count=19),
    ],
    "round": [call(F(3, 4)), call(F(3, 4), 2), call(S(3, 4)), call(C(3, 4), 1)],
    "around": [call(F(3, 4)), call(F(3, 4), 2)],
    "power": [
        call(v.positive(3, 4), F(3, 4)),
        call(F(3, 4), 3),
        call(S(3, 4), v.naturals(3, 4, below=5)),
        call(C(4), C(4)),
        call(v.positive(4, of=v.BF16), v.reals(4, of=v.BF16)),
    ],
    "pow": [call(v.positive(3, 4), F(3, 4)), call(S(3, 4), v.naturals(3, 4, below=5))],
    "float_power": [call(v.positive(3, 4), F(3, 4))],
    "left_shift": [
        call(S(3, 4), v.naturals(3, 4, below=33)),
        call(v.naturals(4, of=np.uint8), v.naturals(4, of=np.uint8)),
    ],
    "right_shift": [
        call(S(3, 4), v.naturals(3, 4, below=33)),
        call(v.naturals(4, of=np.uint8), v.naturals(4, of=np.uint8)),
    ],
    "astype": [call(F(3, 4), t) for t in ("int32", "bfloat16", "complex64", "bool", "uint8", "float16")]
    + [call(S(3, 4), "float32"), call(v.naturals(4, of=np.uint8), "int8")],
    "copy": calls_for(ALL, 3, 4),
}
ENTRIES = {f"jax.numpy.{name}": calls for name, calls in _BY_NAME.items()}
