"""Lowering of cholesky and triangular_solve: kernels with the unblocked textbook loops, one matrix after another.

Both read one triangle only. A target with a linear algebra library, or with blocked loops, replaces the body.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import arith, complex, math, tensor

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math.complex.arithmetic import BINARY, UNARY, create
from stablexla.lowering.rules.conversion import in_element_type
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import choose, count, number
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.scalars import cmpf
from stablexla.lowering.support.storage import compute_type, constant
from stablexla.lowering.support.types import TensorType, tensor_storage, value_type


@dataclass(frozen=True)
class CholeskyConfig:
    """A Cholesky factorization: whether the factor is the lower triangle."""

    lower: bool


@dataclass(frozen=True)
class TriangularSolveConfig:
    """A triangular solve: StableHLO's attributes."""

    transpose_a: str
    left_side: bool
    lower: bool
    unit_diagonal: bool


@lowers("stablehlo.cholesky")
def cholesky(ctx: LoweringContext, a: ir.Value) -> ir.Value:
    """The Cholesky factor in one triangle, zero in the other; all NaN for a matrix that is not positive definite."""
    lower = _truth(ctx, "lower")
    matrices = _Batch.of(ctx.operand_types[0])

    def body(given: ir.Value) -> list[ir.Value]:
        factors = _Factors(matrices.field, given, matrices.type.shape[-1], lower)
        return count(0, matrices.type.shape[0], [_empty(matrices.type)], factors.of_matrix)

    made = kernel(
        ctx,
        "cholesky",
        [matrices.enter(a)],
        body,
        config=CholeskyConfig(lower),
        result_types=[matrices.type],
        independent=True,
    )
    return matrices.leave(made[0])


@lowers("stablehlo.triangular_solve")
def triangular_solve(ctx: LoweringContext, a: ir.Value, b: ir.Value) -> ir.Value:
    """The solution x of op(a) x = b or x op(a) = b, by forward or back substitution."""
    flags = {name: _truth(ctx, name) for name in ("left_side", "lower", "unit_diagonal")}
    return solve_triangular(ctx, a, b, word(ctx.attributes["transpose_a"]), **flags)


def solve_triangular(ctx: LoweringContext, a: ir.Value, b: ir.Value, transpose: str, **flags: bool) -> ir.Value:
    """Emit a triangular solve for an operation with the operands and result of triangular_solve."""
    matrices, sides = (_Batch.of(t) for t in ctx.operand_types)

    def body(given: ir.Value, right: ir.Value) -> list[ir.Value]:
        system = _System(sides.field, given, right, transpose=transpose, **flags)
        return count(0, sides.type.shape[0], [_empty(sides.type)], system.of_matrix)

    made = kernel(
        ctx,
        "triangular_solve",
        [matrices.enter(a), sides.enter(b)],
        body,
        config=TriangularSolveConfig(transpose, **flags),
        result_types=[sides.type],
        independent=True,
    )
    return sides.leave(made[0])


def _truth(ctx: LoweringContext, name: str) -> bool:
    """Return a boolean attribute of the operation; false if absent."""
    return name in ctx.attributes and bool(ctx.attributes[name].value)


# ---- arrays of matrices ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Batch:
    """An array as one batch of matrices in the computing type."""

    given: TensorType
    type: TensorType

    @classmethod
    def of(cls, given: TensorType) -> _Batch:
        element = compute_type(given.element) or given.element
        return cls(given, TensorType(element, (prod(given.shape[:-2]), *given.shape[-2:])))

    @property
    def field(self) -> Field:
        return Field(self.type.element)

    @property
    def whole(self) -> TensorType:
        """The array's type with the computing element type and all batch dimensions."""
        return TensorType(self.type.element, self.given.shape)

    def enter(self, value: ir.Value) -> ir.Value:
        return reshaped(in_element_type(value, self.given, self.type.element), self.whole, self.type)

    def leave(self, value: ir.Value) -> ir.Value:
        return in_element_type(reshaped(value, self.type, self.whole), self.whole, self.given.element)


def _empty(type_: TensorType) -> ir.Value:
    return ir.Operation.create("tensor.empty", results=[tensor_storage(type_)], operands=[]).result


# ---- arithmetic on elements ------------------------------------------------------------------------------------------


class Field:
    """Arithmetic on real or complex elements."""

    def __init__(self, element: ElementType) -> None:
        self.element, self.is_complex = element, element.is_complex
        self.real = value_type(element.part)

    def subtract_product(self, s: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        """s - x * y."""
        return self.subtract(s, self.multiply(x, y))

    def divide(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return BINARY["divide"](x, y, self.element) if self.is_complex else arith.divf(x, y)

    def divide_by_real(self, x: ir.Value, y: ir.Value) -> ir.Value:
        if self.is_complex:
            return create(arith.divf(complex.re(x), y), arith.divf(complex.im(x), y))
        return arith.divf(x, y)

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return BINARY["add"](x, y, self.element) if self.is_complex else arith.addf(x, y)

    def subtract(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return BINARY["subtract"](x, y, self.element) if self.is_complex else arith.subf(x, y)

    def multiply(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return BINARY["multiply"](x, y, self.element) if self.is_complex else arith.mulf(x, y)

    def absolute(self, x: ir.Value) -> ir.Value:
        """The absolute value, a real number."""
        return UNARY["abs"](x, self.element) if self.is_complex else math.absf(x)

    def conjugate(self, x: ir.Value) -> ir.Value:
        return create(complex.re(x), arith.negf(complex.im(x))) if self.is_complex else x

    def real_part(self, x: ir.Value) -> ir.Value:
        return complex.re(x) if self.is_complex else x

    def of_real(self, x: ir.Value) -> ir.Value:
        """Convert a real number to an element."""
        return create(x, constant(self.real, 0.0)) if self.is_complex else x

    def constant(self, x: float) -> ir.Value:
        return self.of_real(constant(self.real, x))


# ---- the loops -------------------------------------------------------------------------------------------------------


class _Factors:
    """Unblocked Cholesky factorization, column by column of the lower factor or row by row of the upper one.

    With x_ij for l_ij or u_ji, both are x_ij = (a_ij - sum over k < j of x_ik * conj(x_jk)) / x_jj.
    """

    def __init__(self, field: Field, given: ir.Value, size: int, lower: bool) -> None:
        self.field, self.given, self.size, self.lower = field, given, size, lower

    def place(self, batch: ir.Value, i: ir.Value, j: ir.Value) -> list[ir.Value]:
        """Return the index of x_ij."""
        return [batch, i, j] if self.lower else [batch, j, i]

    def of_matrix(self, batch: ir.Value, made: ir.Value) -> list[ir.Value]:
        """Factor one matrix."""
        good = constant(ir.IntegerType.get_signless(1), 1)
        made, good = count(0, self.size, [made, good], lambda j, *carried: self._column(batch, j, *carried))

        def spoiled() -> list[ir.Value]:
            return self._fill(made, batch, number(0), self.size, self.field.constant(float("nan")))

        return choose(good, [made.type], lambda: [made], spoiled)

    def _column(self, batch: ir.Value, j: ir.Value, made: ir.Value, good: ir.Value) -> list[ir.Value]:
        """Compute x_ij for all i, and whether all diagonal elements so far are roots of positive numbers."""
        square = self.field.real_part(self._rest(batch, j, j, made))
        good = arith.andi(good, cmpf("OGT", square, constant(self.field.real, 0.0)))
        diagonal = math.sqrt(square)
        made = tensor.insert(self.field.of_real(diagonal), made, self.place(batch, j, j))
        zero = self.field.constant(0.0)
        (made,) = count(0, j, [made], lambda i, m: [tensor.insert(zero, m, self.place(batch, i, j))])

        def element(i: ir.Value, made: ir.Value) -> list[ir.Value]:
            x = self.field.divide_by_real(self._rest(batch, i, j, made), diagonal)
            return [tensor.insert(x, made, self.place(batch, i, j))]

        below = arith.addi(j, number(1))
        return [*count(below, self.size, [made], element), good]

    def _rest(self, batch: ir.Value, i: ir.Value, j: ir.Value, made: ir.Value) -> ir.Value:
        """Subtract the products of the columns before j from a_ij."""

        def step(k: ir.Value, s: ir.Value) -> list[ir.Value]:
            x, y = (tensor.extract(made, self.place(batch, row, k)) for row in (i, j))
            return [self.field.subtract_product(s, x, self.field.conjugate(y))]

        return count(0, j, [tensor.extract(self.given, self.place(batch, i, j))], step)[0]

    def _fill(self, made: ir.Value, batch: ir.Value, low: ir.Value, high: int, value: ir.Value) -> list[ir.Value]:
        def row(i: ir.Value, made: ir.Value) -> list[ir.Value]:
            return count(low, high, [made], lambda j, m: [tensor.insert(value, m, [batch, i, j])])

        return count(low, high, [made], row)


class _System:
    """Triangular solve by forward or back substitution.

    x op(a) = b is op(a)^T x^T = b^T: with m for op(a) or its transpose, both are
    x_i = (b_i - sum over k of m_ik * x_k) / m_ii, for the k whose x_k is known already.
    """

    def __init__(
        self,
        field: Field,
        given: ir.Value,
        right: ir.Value,
        *,
        left_side: bool,
        lower: bool,
        unit_diagonal: bool,
        transpose: str,
    ) -> None:
        self.field, self.given, self.right = field, given, right
        self.left_side, self.unit_diagonal = left_side, unit_diagonal
        self.swapped = (transpose != "NO_TRANSPOSE") == left_side
        self.conjugated = transpose == "ADJOINT"
        self.forward = lower != self.swapped
        shape = list(right.type.shape)
        self.size, self.others = (shape[1], shape[2]) if left_side else (shape[2], shape[1])

    def matrix(self, batch: ir.Value, i: ir.Value, k: ir.Value) -> ir.Value:
        """Load m_ik."""
        value = tensor.extract(self.given, [batch, k, i] if self.swapped else [batch, i, k])
        return self.field.conjugate(value) if self.conjugated else value

    def place(self, batch: ir.Value, i: ir.Value, other: ir.Value) -> list[ir.Value]:
        """Return the index of element i of a solution."""
        return [batch, i, other] if self.left_side else [batch, other, i]

    def of_matrix(self, batch: ir.Value, made: ir.Value) -> list[ir.Value]:
        """Solve for all right-hand sides of one matrix."""

        def one(other: ir.Value, made: ir.Value) -> list[ir.Value]:
            return count(0, self.size, [made], lambda iteration, m: self._element(batch, iteration, other, m))

        return count(0, self.others, [made], one)

    def _element(self, batch: ir.Value, iteration: ir.Value, other: ir.Value, made: ir.Value) -> list[ir.Value]:
        last = number(self.size - 1)
        i = iteration if self.forward else arith.subi(last, iteration)

        def step(before: ir.Value, s: ir.Value) -> list[ir.Value]:
            k = before if self.forward else arith.subi(last, before)
            x = tensor.extract(made, self.place(batch, k, other))
            return [self.field.subtract_product(s, self.matrix(batch, i, k), x)]

        (s,) = count(0, iteration, [tensor.extract(self.right, self.place(batch, i, other))], step)
        x = s if self.unit_diagonal else self.field.divide(s, self.matrix(batch, i, i))
        return [tensor.insert(x, made, self.place(batch, i, other))]
