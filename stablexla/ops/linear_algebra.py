"""Operations on batches of square matrices: Cholesky factors and triangular systems."""

from __future__ import annotations

from typing import Literal

from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.checking import Rules, checking, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import COMPLEX, FLOAT, operation

__all__ = ["cholesky", "triangular_solve"]

#: The operation on a matrix before its use.
Transpose = Literal["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"]


@operation("stablehlo.cholesky", FLOAT | COMPLEX)
def cholesky(a: XlaOp, lower: bool = False) -> XlaOp:
    """The Cholesky factors of a batch of symmetric (Hermitian) positive definite matrices.

    For `lower`, the lower triangular `l` with `a = l @ l.conj().T`, else the upper triangular `u` with
    `a = u.conj().T @ u`. Only that triangle of `a` is read, and of its diagonal only the real part. The rest of the
    result is zero. A matrix that is not positive definite gives a matrix of NaN.

    Args:
        a: `[..., n, n]`, of floats or complex numbers; the dimensions before the last two are those of the batch.
            Types narrower than f32 are computed in f32.
        lower: which triangle of `a` is read and made.

    Returns:
        An array of the shape of `a`.

    Raises:
        ShapeError: (I1) another element type; (C2) fewer than two dimensions; (C3) matrices that are not square.

    Source: `Cholesky` of XLA's operation semantics; StableHLO `cholesky`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.cholesky(b.parameter(0, sx.f32[5, 3, 3]), lower=True)
    XlaOp(stablehlo.cholesky, f32[5,3,3])
    """
    with checking("cholesky", a=a, lower=lower) as rule:
        x = rule.op("a", a)
        rule.types(a=x)
        truth = {"lower": rule.truth("lower", lower)}
        rule("C2", x.shape.rank >= 2, f"a must have at least two dimensions, not {x.shape.rank}")
        *_, rows, columns = x.shape.dimensions
        rule("C3", rows == columns, f"the matrices of a must be square, not of {rows} rows and {columns} columns")
    return x.builder.emit("stablehlo.cholesky", [x], x.shape, truth)


@operation("stablehlo.triangular_solve", FLOAT | COMPLEX)
def triangular_solve(
    a: XlaOp, b: XlaOp, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: Transpose
) -> XlaOp:
    """The solutions `x` of a batch of triangular systems, `op(a) @ x = b` or `x @ op(a) = b`.

    Only one triangle of `a` is read. A zero on the diagonal divides.

    Args:
        a: `[..., m, m]`, of floats or complex numbers; the dimensions before the last two are those of the batch.
            Types narrower than f32 are computed in f32.
        b: `[..., m, k]` for `left_side`, else `[..., k, m]`, of the element type and batch of `a`.
        left_side: whether `op(a)` stands left of `x`.
        lower: which triangle of `a` is read, before it is transposed.
        unit_diagonal: the diagonal of `a` is taken to be 1, and not read.
        transpose_a: "NO_TRANSPOSE", "TRANSPOSE" or "ADJOINT" (the conjugate transpose): what `op` does.

    Returns:
        An array of the shape of `b`.

    Raises:
        ShapeError: (I1, I2) another element type; (I6) another word for `transpose_a`; (C1) element types that differ;
            (C2) ranks that differ or are less than two; (C3) matrices that are not square, do not fit `b`, or batches
            that differ.

    Source: `TriangularSolve` of XLA's operation semantics; StableHLO `triangular_solve`.

    >>> b = sx.XlaBuilder("example")
    >>> l, y = b.parameter(0, sx.f32[5, 3, 3]), b.parameter(1, sx.f32[5, 3, 2])
    >>> sx.triangular_solve(l, y, True, True, False, "NO_TRANSPOSE")
    XlaOp(stablehlo.triangular_solve, f32[5,3,2])
    """
    with checking("triangular_solve", a=a, b=b, left_side=left_side, transpose_a=transpose_a) as rule:
        matrix, x = rule.op("a", a), rule.op("b", b)
        rule.one_builder([matrix, x])
        rule.types(a=matrix, b=x)
        given = {"left_side": left_side, "lower": lower, "unit_diagonal": unit_diagonal}
        truth = {name: rule.truth(name, value) for name, value in given.items()}
        rule.word("I6", "transpose_a", transpose_a, ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"))
        rule("C1", same_element_type(matrix, x), "a and b must have the same element type")
        _check_system(rule, matrix, x, left_side)
    word = stablehlo.TransposeAttr.get(transpose_a, x.builder.context)
    return x.builder.emit("stablehlo.triangular_solve", [matrix, x], x.shape, {**truth, "transpose_a": word})


def _check_system(rule: Rules, a: XlaOp, b: XlaOp, left_side: bool) -> None:
    """C2 and C3: one matrix for each right-hand side of the batch, of the sizes that the product needs."""
    rule("C2", a.shape.rank >= 2, f"a must have at least two dimensions, not {a.shape.rank}")
    rule("C2", a.shape.rank == b.shape.rank, f"a has rank {a.shape.rank}, and b has rank {b.shape.rank}")
    *batch, rows, columns = a.shape.dimensions
    *batch_of_b, rows_of_b, columns_of_b = b.shape.dimensions
    rule("C3", rows == columns, f"the matrices of a must be square, not of {rows} rows and {columns} columns")
    rule("C3", batch == batch_of_b, f"the batch of a is {tuple(batch)}, that of b is {tuple(batch_of_b)}")
    met, what = (rows_of_b, "rows") if left_side else (columns_of_b, "columns")
    rule("C3", met == rows, f"the matrices of b must have as many {what} as those of a have, {rows}, not {met}")
