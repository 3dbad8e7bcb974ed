"""Factorizations and solutions of systems: LAPACK's routines, triangular systems, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

import numpy as np

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import (
    Call,
    broadcast,
    broadcast_sizes,
    convert,
    full_like,
    reduced,
    total,
    wide,
    zeros_like,
)
from stablexla.interop.torch.lapack import lapack
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.contraction import dot
from stablexla.ops.linear_algebra import Transpose

# ---- parts of matrices ----


def transposed(x: XlaOp) -> XlaOp:
    rank = x.shape.rank
    return sx.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def adjoint(x: XlaOp) -> XlaOp:
    return sx.conj(transposed(x)) if x.element_type.is_complex else transposed(x)


def product(x: XlaOp, y: XlaOp) -> XlaOp:
    """Return the products of two batches of matrices."""
    rank = x.shape.rank
    batch = tuple(range(rank - 2))
    return dot(x, y, ((rank - 1,), (rank - 2,)), (batch, batch))


def _places(x: XlaOp) -> tuple[XlaOp, XlaOp]:
    """Return the number of each element's row, and of its column."""
    shape = sx.Shape("s32", x.shape.dimensions)
    return x.builder.iota(shape, x.shape.rank - 2), x.builder.iota(shape, x.shape.rank - 1)


def triangle(x: XlaOp, upper: bool, unit: bool = False) -> XlaOp:
    """Return one triangle, zero elsewhere; with ones on the diagonal for unit triangles."""
    rows, columns = _places(x)
    made = sx.select(sx.le(rows, columns) if upper else sx.ge(rows, columns), x, zeros_like(x))
    return sx.select(sx.eq(rows, columns), full_like(x, 1), made) if unit else made


def identity(x: XlaOp, rows: int, columns: int) -> XlaOp:
    """Return identity matrices of a batch's element type and sizes before the last two."""
    rows_, columns_ = _places(full_like(x, 0, (*x.shape.dimensions[:-2], rows, columns)))
    return convert(sx.eq(rows_, columns_), x.element_type)


def diagonal(x: XlaOp) -> XlaOp:
    """Return the diagonals of square matrices."""
    rows, columns = _places(x)
    return total(sx.select(sx.eq(rows, columns), x, zeros_like(x)), (x.shape.rank - 1,))


def head(x: XlaOp, rows: int, columns: int) -> XlaOp:
    """Return the first rows and columns of matrices."""
    sizes = x.shape.dimensions
    return sx.slice(x, (0,) * len(sizes), (*sizes[:-2], rows, columns))


def solved(
    a: XlaOp, b: XlaOp, *, upper: bool, left: bool = True, unit: bool = False, transpose: Transpose = "NO_TRANSPOSE"
) -> XlaOp:
    """Return the solutions of triangular systems, whose batches are broadcast."""
    a, b = _one_batch(a, b)
    return sx.triangular_solve(a, b, left, not upper, unit, transpose)


def _one_batch(a: XlaOp, b: XlaOp) -> tuple[XlaOp, XlaOp]:
    batch = broadcast_sizes(a.shape.dimensions[:-2], b.shape.dimensions[:-2])
    return broadcast(a, (*batch, *a.shape.dimensions[-2:])), broadcast(b, (*batch, *b.shape.dimensions[-2:]))


def nothing(call: Call, number: int) -> XlaOp:
    """Return a result that the arguments ask PyTorch not to compute."""
    shape = call.shapes[number]
    assert shape is not None
    return call.constant(0, shape.element_type, shape.dimensions)


@aten("aten._linalg_check_errors.default")
def check_errors(call: Call, info: XlaOp, name: str, *, is_matrix: bool) -> None:
    """Programs do not stop for a matrix that has no factors: the results are NaN, or inf."""


# ---- Cholesky ----


@aten("aten.linalg_cholesky_ex.default")
def cholesky_ex(call: Call, a: XlaOp, *, upper: bool) -> tuple[XlaOp, XlaOp]:
    """The factor does not wait for LAPACK's `info`, which most programs do not read."""
    return cholesky(call, a, upper), lapack("potrf", a, uplo="U" if upper else "L")[1]


@aten("aten.cholesky.default")
def cholesky(call: Call, a: XlaOp, upper: bool) -> XlaOp:
    return sx.cholesky(a, lower=not upper)


@aten("aten.cholesky_solve.default")
def cholesky_solve(call: Call, b: XlaOp, factor: XlaOp, upper: bool) -> XlaOp:
    first = solved(factor, b, upper=upper, transpose="ADJOINT" if upper else "NO_TRANSPOSE")
    return solved(factor, first, upper=upper, transpose="NO_TRANSPOSE" if upper else "ADJOINT")


@aten("aten.cholesky_inverse.default")
def cholesky_inverse(call: Call, factor: XlaOp, upper: bool) -> XlaOp:
    n = factor.shape.dimensions[-1]
    return cholesky_solve(call, identity(factor, n, n), factor, upper)


# ---- triangular systems ----


@aten("aten.linalg_solve_triangular.default")
def solve_triangular(call: Call, a: XlaOp, b: XlaOp, *, upper: bool, left: bool, unitriangular: bool) -> XlaOp:
    return solved(a, b, upper=upper, left=left, unit=unitriangular)


@aten("aten.triangular_solve.default")
def triangular_solve(
    call: Call, b: XlaOp, a: XlaOp, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[XlaOp, XlaOp]:
    a, b = _one_batch(a, b)
    word: Transpose = "TRANSPOSE" if transpose else "NO_TRANSPOSE"
    return solved(a, b, upper=upper, unit=unitriangular, transpose=word), a


# ---- LU ----


def factored(a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    """Return both factors of PLU in one matrix, the rows' exchanges from 1, and LAPACK's `info`."""
    factors, pivots, info = lapack("getrf", a)
    return factors, pivots, info


def order_of(pivots: XlaOp, rows: int, inverse: bool = False) -> XlaOp:
    """Return the order of rows that exchanges make, s32[..., rows]: row i with row pivots[i] - 1, one after another.

    Args:
        pivots: s32[..., k].
        rows: of the matrices.
        inverse: the order that undoes it.
    """
    *batch, exchanges = pivots.shape.dimensions
    sizes, last = (*batch, rows), len(batch)
    start = pivots.builder.iota(sx.Shape("s32", sizes), last)
    if not exchanges or not start.shape.size:
        return start
    places = start

    def exchange(state: XlaOp) -> list[XlaOp]:
        step, order = state
        here = exchanges - 1 - step if inverse else step
        there = sx.dynamic_slice(pivots, [*[0] * last, here], (*batch, 1)) - 1
        there = broadcast(there, sizes)
        is_here, is_there = sx.eq(places, here), sx.eq(places, there)
        zero = zeros_like(order)
        one = total(sx.select(is_here, order, zero), (last,), True)
        other = total(sx.select(is_there, order, zero), (last,), True)
        moved = sx.select(is_there, broadcast(one, sizes), order)
        return [step + 1, sx.select(is_here, broadcast(other, sizes), moved)]

    step = pivots.builder.constant(0, "s32")
    return sx.while_(
        lambda state: sx.lt(state[0], exchanges), lambda s: sx.tuple(exchange(s)), sx.tuple([step, start])
    )[1]


def permuted(x: XlaOp, order: XlaOp, dimension: int) -> XlaOp:
    """Return rows, or columns, of matrices in an order of their own for each matrix."""
    moved = x if dimension == -2 else transposed(x)
    made = sx.torch_index_select(moved, order, order.shape.rank - 1, order.shape.rank - 1)
    return made if dimension == -2 else transposed(made)


def solved_by_factors(factors: XlaOp, pivots: XlaOp, b: XlaOp, left: bool = True, is_adjoint: bool = False) -> XlaOp:
    """Return the solutions of `a @ x = b`, or `x @ a = b`, or with the adjoint of a, by the factors of `a`."""
    batch = broadcast_sizes(factors.shape.dimensions[:-2], b.shape.dimensions[:-2])
    factors, b = _one_batch(factors, b)
    rows = b.shape.dimensions[-2 if left else -1]
    pivots = broadcast(pivots, (*batch, pivots.shape.dimensions[-1]))
    word: Transpose = "ADJOINT" if is_adjoint else "NO_TRANSPOSE"

    def lower(x: XlaOp) -> XlaOp:
        return solved(factors, x, upper=False, left=left, unit=True, transpose=word)

    def upper(x: XlaOp) -> XlaOp:
        return solved(factors, x, upper=True, left=left, transpose=word)

    if left != is_adjoint:  # the permutation stands next to the right-hand side
        x = permuted(b, order_of(pivots, rows), -2 if left else -1)
        return upper(lower(x))
    return permuted(lower(upper(b)), order_of(pivots, rows, inverse=True), -2 if left else -1)


@aten("aten.linalg_lu_factor_ex.default")
def lu_factor_ex(call: Call, a: XlaOp, *, pivot: bool) -> tuple[XlaOp, XlaOp, XlaOp]:
    return factored(a)


@aten("aten.lu_unpack.default")
def lu_unpack(
    call: Call, factors: XlaOp, pivots: XlaOp, unpack_data: bool, unpack_pivots: bool
) -> tuple[XlaOp, XlaOp, XlaOp]:
    *_, rows, columns = factors.shape.dimensions
    k = min(rows, columns)
    p = nothing(call, 0)
    if unpack_pivots:
        order = order_of(pivots, rows)
        sizes = (*order.shape.dimensions, rows)
        at = factors.builder.iota(sx.Shape("s32", sizes), len(sizes) - 2)
        batch = tuple(range(len(sizes) - 2))
        p = sx.eq(at, sx.broadcast_in_dim(order, sizes, (*batch, len(sizes) - 1)))
    if not unpack_data:
        return p, nothing(call, 1), nothing(call, 2)
    return p, triangle(head(factors, rows, k), False, unit=True), triangle(head(factors, k, columns), True)


@aten("aten.linalg_lu.default")
def lu(call: Call, a: XlaOp, *, pivot: bool) -> tuple[XlaOp, XlaOp, XlaOp]:
    factors, pivots, _ = factored(a)
    return lu_unpack(call, factors, pivots, True, True)


@aten("aten.linalg_lu_solve.default")
def lu_solve(call: Call, factors: XlaOp, pivots: XlaOp, b: XlaOp, *, left: bool, adjoint: bool) -> XlaOp:
    return solved_by_factors(factors, pivots, b, left, adjoint)


@aten("aten._linalg_solve_ex.default")
def solve_ex(call: Call, a: XlaOp, b: XlaOp, *, left: bool) -> tuple[XlaOp, ...]:
    rank = a.shape.rank
    of_vectors = b.shape.rank == 1 or (b.shape.rank == rank - 1 and b.shape.dimensions == a.shape.dimensions[:-1])
    if of_vectors:
        b = sx.reshape(b, (*b.shape.dimensions, 1))
    factors, pivots, info = factored(a)
    made = solved_by_factors(factors, pivots, b, left)
    return sx.reshape(made, call.dimensions), factors, pivots, info


@aten("aten.linalg_inv_ex.default")
def inv_ex(call: Call, a: XlaOp) -> tuple[XlaOp, XlaOp]:
    factors, pivots, info = factored(a)
    n = a.shape.dimensions[-1]
    return solved_by_factors(factors, pivots, identity(a, n, n)), info


def _sign(factors: XlaOp, pivots: XlaOp) -> XlaOp:
    """Return the signs of the permutations."""
    count = pivots.builder.iota(pivots.shape, pivots.shape.rank - 1) + 1
    exchanged = reduced(sx.ne(pivots, count), False, sx.xor, (pivots.shape.rank - 1,))
    one = full_like(factors, 1, exchanged.shape.dimensions)
    return sx.select(exchanged, sx.neg(one), one)


def _factored_as_kept(call: Call, a: XlaOp) -> tuple[XlaOp, XlaOp]:
    """Return the factors that PyTorch keeps for the gradients of determinants, which count on them: those of the
    transpose for real matrices whose rows lie one after another."""
    factors, pivots, _ = factored(transposed(a) if not a.element_type.is_complex and call.is_contiguous(0) else a)
    return factors, pivots


@aten("aten._linalg_det.default")
def det(call: Call, a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp]:
    factors, pivots = _factored_as_kept(call, a)
    diagonals = diagonal(factors)
    made = reduced(diagonals, 1, sx.mul, (diagonals.shape.rank - 1,))
    return sx.mul(made, _sign(factors, pivots)), factors, pivots


@aten("aten._linalg_slogdet.default")
def slogdet(call: Call, a: XlaOp) -> tuple[XlaOp, XlaOp, XlaOp, XlaOp]:
    factors, pivots = _factored_as_kept(call, a)
    diagonals = diagonal(factors)
    last = (diagonals.shape.rank - 1,)
    sign = sx.mul(reduced(sx.sign(diagonals), 1, sx.mul, last), _sign(factors, pivots))
    return sign, total(sx.log(sx.abs(diagonals)), last), factors, pivots


@aten("aten.linalg_ldl_factor_ex.default")
def ldl_factor_ex(call: Call, a: XlaOp, *, hermitian: bool) -> tuple[XlaOp, XlaOp, XlaOp]:
    """By LAPACK's sytrf or hetrf; the triangle that these do not write is zero."""
    factors, pivots, info = lapack(_for_ldl("trf", a, hermitian), triangle(a, False), uplo="L")
    return triangle(factors, False), pivots, info


@aten("aten.linalg_ldl_solve.default")
def ldl_solve(call: Call, factors: XlaOp, pivots: XlaOp, b: XlaOp, *, hermitian: bool) -> XlaOp:
    factors, b = _one_batch(factors, b)
    pivots = broadcast(pivots, factors.shape.dimensions[:-1])
    return lapack(_for_ldl("trs", factors, hermitian), factors, pivots, b, uplo="L")[0]


def _for_ldl(step: str, a: XlaOp, hermitian: bool) -> str:
    return ("he" if hermitian and a.element_type.is_complex else "sy") + step


# ---- QR ----


@aten("aten.geqrf.default")
def geqrf(call: Call, a: XlaOp) -> list[XlaOp]:
    return lapack("geqrf", a)


@aten("aten.linalg_householder_product.default")
def householder_product(call: Call, reflectors: XlaOp, scales: XlaOp) -> XlaOp:
    return lapack("orgqr", reflectors, scales)[0]


@aten("aten.ormqr.default")
def ormqr(call: Call, reflectors: XlaOp, scales: XlaOp, other: XlaOp, left: bool, transpose: bool) -> XlaOp:
    return lapack("ormqr", reflectors, scales, other, left=left, transpose=transpose)[0]


@aten("aten.linalg_qr.default")
def qr(call: Call, a: XlaOp, mode: str) -> tuple[XlaOp, XlaOp]:
    *batch, rows, columns = a.shape.dimensions
    k = min(rows, columns)
    factors, scales = lapack("geqrf", a)
    kept_rows = rows if mode == "complete" else k
    r = triangle(head(factors, kept_rows, columns), True)
    if mode == "r":
        return nothing(call, 0), r
    reflectors = head(factors, rows, k)
    if kept_rows > k:
        more = [(0, 0, 0)] * (len(batch) + 1)
        reflectors = sx.pad(reflectors, full_like(a, 0, ()), [*more, (0, kept_rows - k, 0)])
    return lapack("orgqr", reflectors, scales)[0], r


# ---- eigenvalues and singular values ----


@aten("aten._linalg_eigh.default")
def eigh(call: Call, a: XlaOp, UPLO: str, compute_v: bool) -> tuple[XlaOp, XlaOp]:
    """Of the one triangle that is named, and of the real parts of the diagonal."""
    vectors, values, _ = lapack("syevd", a, mode="V" if compute_v else "N", uplo=UPLO.upper())
    return values, vectors if compute_v else nothing(call, 1)


@aten("aten.linalg_eig.default")
def eig(call: Call, a: XlaOp) -> tuple[XlaOp, XlaOp]:
    return _eigenvalues(a, "V")


@aten("aten.linalg_eigvals.default", "aten._linalg_eigvals.default")
def eigvals(call: Call, a: XlaOp) -> XlaOp:
    return _eigenvalues(a, "N")[0]


def _eigenvalues(a: XlaOp, vectors: str) -> tuple[XlaOp, XlaOp]:
    *parts, _, right, _ = lapack("geev", a, compute_left="N", compute_right=vectors)
    return parts[0] if len(parts) == 1 else sx.complex(parts[0], parts[1]), right


def singular(a: XlaOp, mode: str) -> tuple[XlaOp, XlaOp, XlaOp]:
    """Return U, the singular values and the adjoint of V: whole for the mode "A", thin for "S"; "N" leaves both
    unwritten."""
    *_, rows, columns = a.shape.dimensions
    k = min(rows, columns)
    p, q = (rows, columns) if mode == "A" else (k, k)
    _, values, u, vh, _ = lapack("gesdd", a, sizes={"p": p, "q": q}, mode=mode)
    return u, values, vh


@aten("aten._linalg_svd.default")
def svd(call: Call, a: XlaOp, full_matrices: bool, compute_uv: bool, *, driver: str | None) -> tuple[XlaOp, ...]:
    u, values, vh = singular(a, "N" if not compute_uv else "A" if full_matrices else "S")
    return (u, values, vh) if compute_uv else (nothing(call, 0), values, nothing(call, 2))


@aten("aten.linalg_pinv.atol_rtol_tensor")
def pinv(call: Call, a: XlaOp, *, atol: XlaOp | None, rtol: XlaOp | None, hermitian: bool) -> XlaOp:
    """Singular values up to max(atol, rtol * the largest one) count as zero; rtol is an epsilon for each row or column
    where there is no other bound."""
    if not a.shape.size:
        return nothing(call, 0)
    if hermitian:
        u, values, _ = lapack("syevd", a, mode="V", uplo="L")
        vh, sizes = adjoint(u), sx.abs(values)
    else:
        u, values, vh = singular(a, "S")
        sizes = values
    default = float(np.finfo(values.element_type.dtype).eps) * max(a.shape.dimensions[-2:])
    last = (sizes.shape.rank - 1,)
    most = reduced(sizes, -inf, sx.max, last, True)
    bound = _bounds(most, atol, rtol, default)
    inverse = sx.select(
        sx.gt(sizes, broadcast(bound, sizes.shape.dimensions)), sx.reciprocal(values), zeros_like(values)
    )
    return product(_scaled_columns(adjoint(vh), inverse), adjoint(u))


def _scaled_columns(matrix: XlaOp, factors: XlaOp) -> XlaOp:
    """Return matrices whose columns are multiplied by real factors [..., columns]."""
    places = (*range(matrix.shape.rank - 2), matrix.shape.rank - 1)
    spread = sx.broadcast_in_dim(convert(factors, matrix.element_type), matrix.shape.dimensions, places)
    return sx.mul(matrix, spread)


@aten("aten.linalg_polar.default")
def polar(call: Call, a: XlaOp) -> tuple[XlaOp, XlaOp]:
    """With a = W S V^H the factors W V^H and V S V^H."""
    if not a.shape.size:
        return nothing(call, 0), nothing(call, 1)
    w, values, vh = singular(a, "S")
    return product(w, vh), product(_scaled_columns(adjoint(vh), values), vh)


@aten("aten.linalg_matrix_sqrth.default")
def matrix_sqrth(call: Call, a: XlaOp) -> XlaOp:
    """With a = Q L Q^H, of its lower triangle, Q sqrt(L) Q^H."""
    if not a.shape.size:
        return nothing(call, 0)
    vectors, values, _ = lapack("syevd", a, mode="V", uplo="L")
    return product(_scaled_columns(vectors, sx.sqrt(values)), adjoint(vectors))


def _bounds(most: XlaOp, atol: XlaOp | None, rtol: XlaOp | None, default: float) -> XlaOp:
    """Return the bound below which a singular value is zero, of the largest ones, [..., 1]."""

    def each(x: XlaOp) -> XlaOp:
        x = convert(x, most.element_type)
        return broadcast(sx.reshape(x, (*x.shape.dimensions, 1)) if x.shape.rank else x, most.shape.dimensions)

    absolute = zeros_like(most) if atol is None else each(atol)
    if rtol is not None:
        relative = each(rtol)
    else:
        relative = sx.select(sx.gt(absolute, zeros_like(absolute)), zeros_like(most), full_like(most, default))
    return sx.max(absolute, sx.mul(relative, most))


# ---- the exponential ----


@aten("aten.linalg_matrix_exp.default")
def matrix_exp(call: Call, a: XlaOp) -> XlaOp:
    """By scaling and squaring: a Taylor polynomial of degree 18 of a / 2**s, squared s times, where the polynomial is
    as exact as the element type (Bader, Blanes and Casas, Computing the matrix exponential, 2019).

    Each matrix has its own s; the loop is as long as the largest one asks for. The polynomial is evaluated in powers
    of a**3 (Paterson and Stockmeyer): seven products.
    """
    if not a.shape.size:
        return a
    a = wide(a)
    rank = a.shape.rank
    size = reduced(total(sx.abs(a), (rank - 2,)), 0, sx.max, (rank - 2,))
    exact = 3.010066362817634 if size.element_type.bits == 32 else 1.090863719290036  # up to this norm
    times = sx.div(sx.select(sx.is_finite(size), size, zeros_like(size)), full_like(size, exact))
    steps = sx.ceil(sx.mul(sx.log(sx.max(times, full_like(size, 1.0))), full_like(size, 1 / log(2))))

    def of_each(x: XlaOp) -> XlaOp:
        return sx.broadcast_in_dim(x, a.shape.dimensions, tuple(range(rank - 2)))

    half = convert(of_each(sx.pow(full_like(steps, 0.5), steps)), a.element_type)
    made = _taylor(sx.mul(a, half), 18, 3)
    most = reduced(steps, 0, sx.max, tuple(range(rank - 2)))

    def square(state: XlaOp) -> XlaOp:
        step, x = state
        ahead = of_each(sx.lt(broadcast(step, steps.shape.dimensions), steps))
        return sx.tuple([step + full_like(step, 1.0), sx.select(ahead, product(x, x), x)])

    return sx.while_(lambda state: sx.lt(state[0], most), square, sx.tuple([zeros_like(most), made]))[1]


def _taylor(x: XlaOp, degree: int, block: int) -> XlaOp:
    """Return the sum of x**k / k! up to a degree that is a multiple of the block."""
    n = x.shape.dimensions[-1]
    powers = [identity(x, n, n), x]
    while len(powers) <= block:
        powers.append(product(powers[-1], x))
    coefficients = [1.0]
    for k in range(1, degree + 1):
        coefficients.append(coefficients[-1] / k)
    made = _combined(powers[:1], coefficients[degree:])
    for first in range(degree - block, -1, -block):
        made = sx.add(product(made, powers[block]), _combined(powers[:block], coefficients[first : first + block]))
    return made


def _combined(terms: Sequence[XlaOp], factors: Sequence[float]) -> XlaOp:
    parts = [sx.mul(term, full_like(term, factor)) for term, factor in zip(terms, factors, strict=True)]
    made = parts[0]
    for part in parts[1:]:
        made = sx.add(made, part)
    return made
