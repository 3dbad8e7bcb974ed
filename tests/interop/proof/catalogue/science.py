"""Calls of what is left of `jax.scipy`: special functions, signals, solvers, rotations."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.spatial.transform import Rotation

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, through

F, C = v.reals, v.complexes
_MATRIX, _DEFINITE = v.square(6), v.definite(6)

_SPECIAL: dict[str, list[Call]] = {
    "bernoulli": [call(12)],
    "bessel_jn": [call(v.positive(4), v=3)],
    "beta": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "betainc": [call(v.positive(3, 4), v.positive(3, 4, seed=1), v.unit(3, 4))],
    "betaln": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "comb": [call(v.between(5, 20, 3, 4), v.positive(3, 4)), call(v.positive(4), v.positive(4), repetition=True)],
    "exp1": [call(v.positive(3, 4)), call(v.between(0.01, 40, 9))],
    "expi": [call(F(3, 4)), call(v.between(-30, 30, 9))],
    "expn": [call(v.naturals(9, below=5), v.positive(9))],
    "factorial": [call(v.naturals(9, below=12)), call(v.positive(9))],
    "gammainc": [
        call(v.positive(3, 4), v.positive(3, 4, seed=1)),
        call(v.between(1, 60, 9), v.between(1, 60, 9, seed=1)),
    ],
    "gammaincc": [
        call(v.positive(3, 4), v.positive(3, 4, seed=1)),
        call(v.between(1, 60, 9), v.between(1, 60, 9, seed=1)),
    ],
    "hyp1f1": [call(v.positive(9), v.positive(9, seed=1), F(9))],
    "hyp2f1": [call(v.unit(9), v.unit(9, seed=1), v.positive(9), v.between(-0.8, 0.8, 9))],
    "multigammaln": [call(v.positive(3, 4) + 2, 3)],
    "poch": [call(v.positive(3, 4), v.positive(3, 4, seed=1))],
    "polygamma": [call(v.naturals(3, 4, below=4), v.positive(3, 4))],
    "sph_harm_y": [call(v.naturals(3, below=4), v.naturals(3, below=2), v.unit(3), v.unit(3, seed=1), n_max=4)],
    "wofz": [call(C(3, 4))],
    "zeta": [call(v.between(1.5, 6, 3, 4), v.positive(3, 4))],
    "logsumexp": [call(F(3, 4)), call(F(3, 4), axis=1, b=F(3, 4, seed=1), return_sign=True), call(C(9))],
}

_STATS: dict[str, list[Call]] = {
    "mode": [call(v.naturals(9, 3, below=4)), call(F(3, 4), axis=1, keepdims=True)],
    "rankdata": [call(v.naturals(9, below=5), m) for m in ("average", "min", "max", "dense", "ordinal")],
    "sem": [call(F(3, 9)), call(F(3, 9), axis=1, keepdims=True)],
}

_SIGNAL: dict[str, list[Call]] = {
    **{
        name: [
            call(F(20), F(5)),
            call(F(20), F(5), "same"),
            call(C(12), C(4), "valid"),
            call(v.reals(9, 8), v.reals(3, 2)),
        ]
        for name in ("convolve", "correlate")
    },
    **{
        name: [call(F(9, 8), F(3, 2)), call(F(9, 8), F(3, 3), "same"), call(C(6, 5), C(2, 2), "valid")]
        for name in ("convolve2d", "correlate2d")
    },
    "csd": [call(F(64), F(64, seed=1), nperseg=16)],
    "detrend": [call(F(3, 20)), call(F(20), type="constant"), call(F(20), bp=[7])],
    "fftconvolve": [call(F(20), F(5)), call(F(9, 8), F(3, 2), "same"), call(C(12), C(4), "valid")],
    "istft": [call(C(9, 7), nperseg=16)],
    "stft": [call(F(64), nperseg=16), call(F(2, 64), nperseg=16, noverlap=12, window="hamming")],
    "welch": [call(F(64), nperseg=16), call(C(64), nperseg=16, average="median")],
}


def _through_rotation(name: str, *arguments: Any) -> Call:
    def called(cls: Any, q: Any, *rest: Any) -> Any:
        found = getattr(cls.from_quat(q), name)(*rest)
        return found.as_quat() if isinstance(found, Rotation) else found

    return through(called, F(5, 4), *arguments)


_CLASSES: dict[str, list[Call]] = {
    "jax.scipy.spatial.transform.Rotation": [
        _through_rotation("as_euler", "xyz"),
        *[_through_rotation(n) for n in ("as_matrix", "as_mrp", "as_quat", "as_rotvec", "inv", "magnitude", "mean")],
        _through_rotation("apply", F(5, 3)),
        through(lambda cls, m: cls.from_matrix(m).as_quat(), np.linalg.qr(v.square(3, 2))[0]),
        through(lambda cls, r: cls.from_rotvec(r).as_matrix(), F(5, 3)),
        through(lambda cls, a: cls.from_euler("zyx", a).as_matrix(), F(5, 3)),
        through(lambda cls, p, q: (cls.from_quat(p) * cls.from_quat(q)).as_quat(), F(5, 4), F(5, 4, seed=1)),
    ],
    "jax.scipy.spatial.transform.Slerp": [
        through(
            lambda cls, q, t: cls.init(jnp.arange(5.0), Rotation.from_quat(q))(t).as_quat(),
            F(5, 4),
            v.between(0.1, 3.9, 7),
        )
    ],
    "jax.scipy.interpolate.RegularGridInterpolator": [
        through(
            lambda cls, x, y, z, at, method=method: cls((x, y), z, method=method)(at),
            np.arange(5, dtype=np.float32),
            np.arange(4, dtype=np.float32),
            F(5, 4),
            v.between(0.1, 2.9, 7, 2),
        )
        for method in ("linear", "nearest")
    ],
    "jax.scipy.stats.gaussian_kde": [
        through(lambda cls, data, at: cls(data)(at), F(20), F(7)),
        through(lambda cls, data, at: cls(data).logpdf(at), F(2, 20), F(2, 7)),
        through(lambda cls, data: cls(data).integrate_box_1d(-1.0, 1.0), F(20)),
        through(lambda cls, data: cls(data).resample(v.key_data(), (5,)), F(2, 20)),
    ],
    "jax.numpy.ufunc": [
        through(lambda _, x: jnp.add.reduce(x, axis=1), F(3, 4)),
        through(lambda _, x: jnp.multiply.accumulate(x, axis=1), F(3, 4)),
        through(lambda _, x, y: jnp.maximum.outer(x, y), F(3), F(4)),
        through(lambda _, x, i: jnp.add.at(x, i, 2.0, inplace=False), F(9), v.naturals(4)),
        through(lambda _, x, i: jnp.add.reduceat(x, i), F(9), np.array([0, 3, 5], np.int32)),
        through(lambda _, x: jnp.frompyfunc(lambda a, b: a * 2 + b, 2, 1).reduce(x), F(9)),
    ],
}

_REST: dict[str, list[Call]] = {
    "ndimage.map_coordinates": [
        call(F(6, 5), [v.between(-1, 6, 9), v.between(-1, 5, 9)], order, mode=mode)
        for order in (0, 1)
        for mode in ("constant", "nearest", "wrap", "mirror", "reflect")
    ],
    "fft.dct": [call(F(3, 8)), call(F(3, 8), axis=0, norm="ortho"), call(F(8), n=5)],
    "fft.idct": [call(F(3, 8)), call(F(3, 8), axis=0, norm="ortho"), call(F(8), n=5)],
    "fft.dctn": [call(F(3, 8)), call(F(4, 3, 8), axes=(0, 2), norm="ortho")],
    "fft.idctn": [call(F(3, 8)), call(F(4, 3, 8), axes=(0, 2), norm="ortho")],
    "integrate.trapezoid": [call(F(9)), call(F(3, 9), v.increasing(9)), call(F(5, 4), dx=0.5, axis=0)],
    "cluster.vq.vq": [call(F(9, 3), F(4, 3))],
    "sparse.linalg.cg": [call(_DEFINITE, F(6)), call(lambda x: 2 * x, F(6), maxiter=3)],
    "sparse.linalg.bicgstab": [call(_MATRIX, F(6))],
    "sparse.linalg.gmres": [call(_MATRIX, F(6)), call(_MATRIX, F(6), solve_method="incremental", restart=4, maxiter=2)],
    "optimize.minimize": [
        through(
            lambda f, x: f(lambda x: ((x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(), x, method="BFGS").x,
            v.unit(3),
        )
    ],
}
ENTRIES = {
    **{f"jax.scipy.special.{name}": calls for name, calls in _SPECIAL.items()},
    **{f"jax.scipy.stats.{name}": calls for name, calls in _STATS.items()},
    **{f"jax.scipy.signal.{name}": calls for name, calls in _SIGNAL.items()},
    **{f"jax.scipy.{name}": calls for name, calls in _REST.items()},
    **_CLASSES,
}
