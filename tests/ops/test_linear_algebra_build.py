"""What the builder emits for cholesky and triangular_solve, and what it refuses."""

from __future__ import annotations

import pytest

import stablexla as sx
from tests.ops.building import build, refused


def solve(a, b, left_side=True, lower=True, unit_diagonal=False, transpose_a="NO_TRANSPOSE"):
    return sx.triangular_solve(a, b, left_side, lower, unit_diagonal, transpose_a)


class TestCholesky:
    @pytest.mark.parametrize("shape", [sx.f32[3, 3], sx.c128[2, 0, 1, 1], sx.bf16[0, 0], sx.f8e5m2[1, 2, 2]])
    def test_shapes(self, shape):
        computation = build(lambda a: sx.cholesky(a, lower=True), shape)
        assert computation.result_shape == shape
        assert "lower = true" in str(computation)

    def test_cholesky_i1(self):
        error = refused("I1", lambda a: sx.cholesky(a), sx.s32[3, 3])
        assert "floating-point or complex type, not s32" in str(error)

    def test_cholesky_c2(self):
        error = refused("C2", lambda a: sx.cholesky(a), sx.f32[3])
        assert "at least two dimensions, not 1" in str(error)

    def test_cholesky_c3(self):
        error = refused("C3", lambda a: sx.cholesky(a, True), sx.f32[4, 3, 2])
        assert "square, not of 3 rows and 2 columns" in str(error)

    def test_other_values(self):
        refused("", lambda a: sx.cholesky(a, "lower"), sx.f32[3, 3])
        refused("", lambda a: sx.cholesky(2.0), sx.f32[3, 3])


class TestTriangularSolve:
    @pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    def test_shapes(self, transpose):
        computation = build(lambda a, b: solve(a, b, transpose_a=transpose), sx.f64[2, 3, 3], sx.f64[2, 3, 5])
        assert computation.result_shape == sx.f64[2, 3, 5]
        assert f"transpose {transpose}" in str(computation)
        computation = build(lambda a, b: solve(a, b, left_side=False), sx.c64[3, 3], sx.c64[5, 3])
        assert computation.result_shape == sx.c64[5, 3]

    def test_triangular_solve_i1(self):
        refused("I1", solve, sx.s32[3, 3], sx.s32[3, 3])

    def test_triangular_solve_i2(self):
        refused("I2", solve, sx.f32[3, 3], sx.pred[3, 3])

    def test_triangular_solve_i6(self):
        error = refused("I6", lambda a, b: solve(a, b, transpose_a="CONJUGATE"), sx.f32[3, 3], sx.f32[3, 3])
        assert "NO_TRANSPOSE, TRANSPOSE or ADJOINT, not 'CONJUGATE'" in str(error)

    def test_triangular_solve_c1(self):
        refused("C1", solve, sx.f32[3, 3], sx.f64[3, 3])

    def test_triangular_solve_c2(self):
        error = refused("C2", solve, sx.f32[3], sx.f32[3])
        assert "at least two dimensions" in str(error)
        error = refused("C2", solve, sx.f32[2, 3, 3], sx.f32[3, 3])
        assert "a has rank 3, and b has rank 2" in str(error)

    @pytest.mark.parametrize(
        ("a", "b", "left_side", "told"),
        [
            (sx.f32[3, 2], sx.f32[3, 2], True, "square"),
            (sx.f32[2, 3, 3], sx.f32[1, 3, 3], True, "the batch of a is (2,), that of b is (1,)"),
            (sx.f32[3, 3], sx.f32[2, 3], True, "as many rows as those of a have, 3, not 2"),
            (sx.f32[3, 3], sx.f32[3, 2], False, "as many columns as those of a have, 3, not 2"),
        ],
    )
    def test_triangular_solve_c3(self, a, b, left_side, told):
        error = refused("C3", lambda x, y: solve(x, y, left_side=left_side), a, b)
        assert told in str(error)

    def test_other_values(self):
        refused("", lambda a, b: solve(a, b, left_side=2), sx.f32[3, 3], sx.f32[3, 3])
        refused("", lambda a, b: solve(a, b, unit_diagonal=None), sx.f32[3, 3], sx.f32[3, 3])
        refused("", lambda a: solve(a, 1.0), sx.f32[3, 3])
