"""Programs that sum n numbers, one for each way in which the CPU target does it, and how far their sums are off.

The error of a sum is |result - exact| in units of u times the sum of the magnitudes of its terms, u being the unit
roundoff of the type that is summed in. The exact sums are those of wider types: f64, and long double for f64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import ml_dtypes
import numpy as np

import stablexla as sx

Array = np.ndarray[Any, np.dtype[Any]]
Dims = tuple[int, ...]
#: (values, sums of magnitudes) in a wide type, of operands in that type
Exact = Callable[..., tuple[Array, Array]]
DTYPES = {
    "f32": np.dtype("f4"), "f64": np.dtype("f8"), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype("f2"),
    "c64": np.dtype("c8"), "c128": np.dtype("c16"),
}  # fmt: skip
#: numbers that are hard in different ways: of one sign, of both, and all equal, so that every addition rounds alike
FILLS = ("positive", "signed", "equal")
#: terms that are summed wide at a time
CHUNK = 1 << 16


def bound(n: int) -> float:
    """The error that a sum of n numbers may have."""
    return 8 * log2(n)


def fill(kind: str, shape: Dims, dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Numbers of one kind; of f16 so small that their sums stay in its range."""
    rng = np.random.default_rng(seed)
    part = np.float64 if dtype in (np.dtype("f8"), np.dtype("c16")) else np.float32

    def real() -> Array:
        if kind == "equal":
            return np.full(shape, 1.1 + seed / 7, part)
        return rng.random(shape, part) if kind == "positive" else rng.standard_normal(shape, part)

    if dtype.kind == "c":
        return np.asarray(real() + 1j * real()).astype(dtype)
    return (real() * 2.0**-9 if dtype == DTYPES["f16"] else real()).astype(dtype)


def sum_over(terms: Array, axes: Sequence[int]) -> Array:
    """Sums along some axes, nearly exact; what long double has no digits to spare for is summed in chunks, pairwise."""
    if terms.dtype in (np.dtype("f8"), np.dtype("c16")):
        return np.asarray(terms.sum(tuple(axes)))
    kept = [d for d in range(terms.ndim) if d not in axes]
    rows = np.ascontiguousarray(terms.transpose([*kept, *axes])).reshape(*(terms.shape[d] for d in kept), -1)
    whole = rows.shape[-1] // CHUNK * CHUNK
    total = rows[..., whole:].sum(-1)
    if whole:
        total = total + rows[..., :whole].reshape(*rows.shape[:-1], -1, CHUNK).sum(-1).sum(-1)
    return np.asarray(total)


def with_magnitudes(sums: Callable[..., Array], *arrays: Array) -> tuple[Array, Array]:
    """Sums, and those of the magnitudes, which are the same where nothing is negative."""
    values = sums(*arrays)
    alike = all(a.dtype.kind == "f" and a.min() >= 0 for a in arrays)
    return values, values if alike else sums(*map(np.abs, arrays))


@dataclass(frozen=True)
class Path:
    """A way of summing.

    Attributes:
        shapes: the operands' for n terms of a sum.
        make: (builder, operands) -> the sums; further results are left out of account.
        exact: the sums and those of the magnitudes.
        dtypes: element types that it is measured in.
        most: log2 of the largest n that fits memory.
        general: whether all kernels go through the general path.
        vector_bits: width of vectors; None is the machine's own.
    """

    name: str
    shapes: Callable[[int], Sequence[Dims]]
    make: Callable[..., Any]
    exact: Exact
    dtypes: tuple[str, ...] = ("f32",)
    most: int = 24
    general: bool = False
    vector_bits: int | None = None

    def program(self, n: int, dtype: str) -> sx.XlaComputation:
        """The program for n terms."""
        b = sx.XlaBuilder("sums")
        made = self.make(b, *(b.parameter(i, sx.Shape(DTYPES[dtype], s)) for i, s in enumerate(self.shapes(n))))
        return b.build(sx.tuple(made) if isinstance(made, list) else made)

    def errors(self, n: int, dtype: str, fills: Sequence[str] = FILLS, target: str | None = None) -> dict[str, float]:
        """The largest error for each kind of numbers; the CPU's options are left out for another target."""
        if target is None:
            executable = sx.compile(self.program(n, dtype), options=self._options())
        else:
            executable = sx.compile(self.program(n, dtype), target=target)
        out = {}
        for kind in fills:
            arrays = [fill(kind, shape, DTYPES[dtype], seed) for seed, shape in enumerate(self.shapes(n))]
            found = np.asarray(executable.execute(arrays)[0])
            out[kind] = error(found, self.exact(*(_wide(a) for a in arrays)), dtype)
        return out

    def _options(self) -> sx.CompileOptions:
        from tests.programs import general_only

        return general_only() if self.general else sx.CompileOptions(vector_bits=self.vector_bits)


def unit(dtype: np.dtype[Any]) -> float:
    """The unit roundoff of the type that numbers of `dtype` are summed in: f32 for narrower ones."""
    return 2.0**-53 if dtype in (np.dtype("f8"), np.dtype("c16")) else 2.0**-24


def error(found: Array, exact: tuple[Array, Array], dtype: str) -> float:
    """The largest error of sums in units of u; the last rounding of a result narrower than f32 is forgiven."""
    values, magnitudes = exact
    relative, absolute = {"bf16": (2.0**-8, 0.0), "f16": (2.0**-11, 2.0**-25)}.get(dtype, (0.0, 0.0))
    last = relative * np.abs(values) + absolute
    wide = found.reshape(values.shape).astype(values.dtype)
    return float((np.maximum(np.abs(wide - values) - last, 0) / magnitudes).max() / unit(found.dtype))


def _wide(array: Array) -> Array:
    names = {np.dtype("f8"): np.longdouble, np.dtype("c8"): np.complex128, np.dtype("c16"): np.clongdouble}
    return array.astype(names.get(array.dtype, np.float64))


# --- reductions ---------------------------------------------------------------------------------------------------


def _zero(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    return b.constant(np.zeros((), x.shape.element_type.dtype))


def _total(b: sx.XlaBuilder, x: sx.XlaOp, axes: Sequence[int]) -> sx.XlaOp:
    return sx.reduce(x, _zero(b, x), sx.add, axes)


def reduction(
    name: str, shape: Callable[[int], Dims], axes: Sequence[int], *, elements: bool = False, **more: Any
) -> Path:
    """Sums of one array over some axes; with `elements` the kernel writes an array as well."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
        if not elements:
            return _total(b, x, axes)
        twice = x + x
        return [_total(b, twice, axes), twice + x]

    def exact(x: Array) -> tuple[Array, Array]:
        terms = x + x if elements else x
        return with_magnitudes(lambda x: sum_over(x, axes), terms)

    return Path(name, lambda n: [shape(n)], make, exact, **more)


ALL = ("f32", "f64", "bf16", "f16", "c64", "c128")
REAL = ("f32", "f64", "bf16", "f16")


def _windowed(b: sx.XlaBuilder, x: sx.XlaOp, sizes: Dims) -> sx.XlaOp:
    return sx.reduce_window(x, _zero(b, x), sx.add, sizes, (1,) * len(sizes), "VALID")


def _norm_training(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    ones, zeros = (b.constant(np.full(3, v, np.float32)) for v in (1, 0))
    made = sx.batch_norm_training(x, ones, zeros, 1e-3, 1)
    return [sx.get_tuple_element(made, 1), sx.get_tuple_element(made, 0)]


def _exact_mean(x: Array) -> tuple[Array, Array]:
    count = x.size // 3
    return sum_over(x, (0, 2)) / count, sum_over(np.abs(x), (0, 2)) / count


def _norm_grad(b: sx.XlaBuilder, x: sx.XlaOp, g: sx.XlaOp) -> list[sx.XlaOp]:
    ones, zeros = (b.constant(np.full(3, v, np.float32)) for v in (1, 0))
    made = sx.batch_norm_grad(x, ones, zeros, ones, g, 1e-3, 1)
    return [sx.get_tuple_element(made, 2), sx.get_tuple_element(made, 0)]


def _several(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
    zero, least = _zero(b, x), b.constant(np.array(-np.inf, np.float32))

    def both(a: sx.XlaOp, c: sx.XlaOp, v: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple([a + v, sx.max(c, w)])

    made = sx.reduce([x, y], [zero, least], both, (0,))
    return [sx.get_tuple_element(made, i) for i in range(2)]


REDUCTIONS = (
    reduction("a scalar", lambda n: (n,), (0,), dtypes=ALL, most=26),
    reduction("a scalar, 128-bit vectors", lambda n: (n,), (0,), dtypes=REAL, vector_bits=128, most=26),
    reduction("a scalar, 512-bit vectors", lambda n: (n,), (0,), dtypes=REAL, vector_bits=512, most=26),
    reduction("a scalar beside elements", lambda n: (n,), (0,), elements=True, dtypes=ALL, most=26),
    reduction("a scalar beside elements, 2 dimensions", lambda n: (n // 64, 64), (0, 1), elements=True, most=26),
    reduction("rows", lambda n: (16, n), (1,), dtypes=ALL, most=22),
    reduction("3 rows", lambda n: (3, n), (1,), dtypes=REAL),
    reduction("rows beside elements", lambda n: (3, n), (1,), elements=True, dtypes=REAL),
    reduction("columns, few", lambda n: (n, 3), (0,), dtypes=ALL),
    reduction("columns, many", lambda n: (n, 40), (0,), dtypes=REAL, vector_bits=128, most=22),
    reduction("columns, many, 2 dimensions", lambda n: (n // 16, 3, 16, 40), (0, 2), vector_bits=128, most=20),
    reduction("columns beside elements", lambda n: (n, 16), (0,), elements=True, dtypes=REAL, most=22),
    reduction("middle dimension", lambda n: (2, n, 5), (1,), dtypes=ALL, most=20),
    reduction("outer and inner dimension", lambda n: (n // 32, 8, 32), (0, 2), dtypes=ALL, most=22),
    reduction("outer and inner dimension, long", lambda n: (32, 8, n // 32), (0, 2), dtypes=REAL, most=22),
    reduction("outer dimensions, two of them", lambda n: (n // 32, 2, 32, 5), (0, 2), dtypes=REAL, most=22),
    Path(
        "two arrays at once",
        lambda n: [(n,), (n,)],
        _several,
        lambda x, y: (sum_over(x, (0,)), sum_over(np.abs(x), (0,))),
        most=26,
    ),
    Path("batch norm, mean", lambda n: [(n // 32, 3, 32)], _norm_training, _exact_mean, most=22),
    Path(
        "batch norm, gradient",
        lambda n: [(n // 32, 3, 32), (n // 32, 3, 32)],
        _norm_grad,
        lambda x, g: (sum_over(g, (0, 2)), sum_over(np.abs(g), (0, 2))),
        most=22,
    ),
    reduction("general path, a scalar", lambda n: (n,), (0,), dtypes=ALL, general=True, most=26),
    reduction("general path, columns", lambda n: (n, 3), (0,), dtypes=ALL, general=True),
    reduction("general path, rows", lambda n: (3, n), (1,), dtypes=ALL, general=True),
)


# --- contractions and convolutions --------------------------------------------------------------------------------


def product(
    name: str, left: Callable[[int], Dims], right: Callable[[int], Dims], numbers: tuple[Any, ...], **more: Any
) -> Path:
    """Sums of products of two arrays."""
    contracted, batch = numbers

    def make(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        dims = sx.DotDimensionNumbers(contracted[0], contracted[1], batch[0], batch[1])
        return sx.dot_general(x, y, dims)

    def exact(x: Array, y: Array) -> tuple[Array, Array]:
        return with_magnitudes(lambda x, y: _contracted(x, y, contracted, batch), x, y)

    return Path(name, lambda n: [left(n), right(n)], make, exact, **more)


def _contracted(x: Array, y: Array, contracted: Any, batch: Any) -> Array:
    """The sums of products, one pair of lines after the other."""

    def lines(a: Array, c: Sequence[int], b: Sequence[int]) -> Array:
        free = [d for d in range(a.ndim) if d not in (*c, *b)]
        turned = a.transpose([*b, *free, *c])
        return turned.reshape(prod(a.shape[d] for d in b), prod(a.shape[d] for d in free), -1)

    left, right = lines(x, contracted[0], batch[0]), lines(y, contracted[1], batch[1])
    if x.dtype in (np.dtype("f8"), np.dtype("c16")):
        return np.asarray(left @ right.transpose(0, 2, 1)).reshape(-1)
    left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
    sums = [[[sum_over(u * v, (0,)) for v in q] for u in p] for p, q in zip(left, right, strict=True)]
    return np.asarray(sums).reshape(-1)


_LAST, _NONE = ((1,), (1,)), ((), ())
PRODUCTS = (
    product("dot of vectors", lambda n: (n,), lambda n: (n,), (((0,), (0,)), _NONE), dtypes=ALL, most=26),
    product("matrix by vector", lambda n: (5, n), lambda n: (n,), (((1,), (0,)), _NONE), dtypes=ALL),
    product("vector by matrix", lambda n: (n,), lambda n: (n, 12), (((0,), (0,)), _NONE), dtypes=REAL, most=24,
            vector_bits=128),
    product("few rows by matrix", lambda n: (2, n), lambda n: (n, 12), (((1,), (0,)), _NONE), dtypes=REAL, most=24,
            vector_bits=128),
    product("few rows by lines", lambda n: (4, n), lambda n: (9, n), (_LAST, _NONE), dtypes=ALL, most=22),
    product("matrices", lambda n: (17, n), lambda n: (n, 4), (((1,), (0,)), _NONE), dtypes=ALL, most=22),
    product("matrices, transposed", lambda n: (n, 17), lambda n: (n, 4), (((0,), (0,)), _NONE), dtypes=REAL, most=22),
    product("matrices, 2 dimensions", lambda n: (n // 16, 6, 16), lambda n: (n // 16, 16, 4),
            (((0, 2), (0, 1)), _NONE), most=22),
    product("many matrices", lambda n: (2, 8, n), lambda n: (2, n, 4), (((2,), (1,)), ((0,), (0,))),
            dtypes=REAL, most=22),
    product("general path, matrices", lambda n: (4, n), lambda n: (n, 3), (((1,), (0,)), _NONE), dtypes=ALL,
            general=True, most=22),
)  # fmt: skip


def convolution(name: str, numbers: tuple[str, str, str], left: Any, right: Any, axes: Any, **more: Any) -> Path:
    """Convolutions of one output place: the window is as large as the array; the sums are those of a product."""
    contracted, batch = axes
    groups = more.pop("groups", 1)

    def make(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        spatial = x.shape.rank - 2
        dims = sx.ConvDimensionNumbers.of(*numbers)
        return sx.conv_general(x, w, (1,) * spatial, "VALID", dims, feature_group_count=groups)

    def exact(x: Array, w: Array) -> tuple[Array, Array]:
        return with_magnitudes(lambda x, w: _contracted(x, w, contracted, batch), x, w)

    return Path(name, lambda n: [left(n), right(n)], make, exact, **more)


CONVOLUTIONS = (
    convolution("convolution, long window", ("NWC", "WIO", "NWC"), lambda n: (1, n // 8, 8), lambda n: (n // 8, 8, 4),
                (((1, 2), (0, 1)), _NONE), dtypes=("f32", "bf16"), most=20),
    convolution("convolution, weights' gradient", ("CHWN", "IHWO", "HWNC"), lambda n: (n // 1024, 32, 32, 3),
                lambda n: (n // 1024, 32, 32, 4), (((0, 1, 2), (0, 1, 2)), _NONE), dtypes=("f32", "f64"), most=20),
    convolution("convolution, many features", ("NHWC", "HWIO", "NHWC"), lambda n: (2, 3, 3, n // 9),
                lambda n: (3, 3, n // 9, 4), (((1, 2, 3), (0, 1, 2)), _NONE), dtypes=("f32", "bf16"), most=20),
    convolution("convolution, by channels", ("NWC", "WIO", "NWC"), lambda n: (1, n, 4), lambda n: (n, 1, 4),
                (((1,), (0,)), ((2,), (2,))), most=20, groups=4, vector_bits=128),
)  # fmt: skip


# --- windows and scans --------------------------------------------------------------------------------------------


def windows(name: str, shape: Callable[[int], Dims], axis: int, **more: Any) -> Path:
    """Windows of n neighbours along one axis, two of them."""

    def sizes(x: sx.XlaOp) -> Dims:
        return tuple(d - 1 if i == axis else 1 for i, d in enumerate(x.shape.dimensions))

    def exact(x: Array) -> tuple[Array, Array]:
        lines = np.moveaxis(x, axis, 0)
        parts = [np.moveaxis(part, 0, axis) for part in (lines[:-1], lines[1:])]
        return with_magnitudes(lambda *parts: np.stack([sum_over(p, (axis,)) for p in parts], axis), *parts)

    return Path(name, lambda n: [shape(n)], lambda b, x: _windowed(b, x, sizes(x)), exact, **more)


def scan(name: str, shape: Callable[[int], Dims], axis: int, *, backwards: bool = False, **more: Any) -> Path:
    """Cumulative sums: all of them are compared, each with its own magnitudes and its own number of terms."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        sizes = [d if i == axis else 1 for i, d in enumerate(x.shape.dimensions)]
        pads = [((0, d - 1) if backwards else (d - 1, 0)) if d > 1 else (0, 0) for d in sizes]
        return sx.reduce_window_with_general_padding(x, _zero(b, x), sx.add, sizes, (), (), (), pads)

    def exact(x: Array) -> tuple[Array, Array]:
        def sums(x: Array) -> Array:
            return np.flip(_cumulative(np.flip(x, axis), axis), axis) if backwards else _cumulative(x, axis)

        return with_magnitudes(sums, x)

    return Path(name, lambda n: [shape(n)], make, exact, **more)


def _cumulative(x: Array, axis: int) -> Array:
    """Cumulative sums, of chunks and then of their totals: one running sum of 2^24 terms would be off by more."""
    lines = np.moveaxis(x, axis, -1)
    n = lines.shape[-1]
    length = 1 << (n.bit_length() // 2)
    filled = np.concatenate([lines, np.zeros((*lines.shape[:-1], -n % length), x.dtype)], -1)
    within = filled.reshape(*lines.shape[:-1], -1, length).cumsum(-1)
    before = np.concatenate([np.zeros_like(within[..., :1, -1]), within[..., :-1, -1].cumsum(-1)], -1)
    whole = (within + before[..., None]).reshape(filled.shape)[..., :n]
    return np.asarray(np.moveaxis(whole, -1, axis))


SCANS = (
    windows("window, general", lambda n: (n + 1,), 0, most=22),
    windows("window, channels", lambda n: (n + 1, 8), 0, most=20),
    scan("scan along a line", lambda n: (n,), 0, dtypes=REAL, most=24),
    scan("scan backwards", lambda n: (n,), 0, backwards=True, dtypes=REAL, most=24),
    scan("scan along lines", lambda n: (8, n), 1, dtypes=REAL, most=22),
    scan("scan down few columns", lambda n: (n, 3), 0, dtypes=REAL, most=22),
    scan("scan down columns", lambda n: (n, 36), 0, dtypes=REAL, most=20, vector_bits=128),
)
PATHS = (*REDUCTIONS, *PRODUCTS, *CONVOLUTIONS, *SCANS)
