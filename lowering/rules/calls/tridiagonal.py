"""Lowering of JAX's tridiagonal solve for singular systems: Gaussian elimination with perturbed pivots.

The algorithm is LAPACK's lagtf and lagts for one right-hand side: partial pivoting, and a pivot that would make a
solution overflow is perturbed away from zero, by an amount that begins with a rounding error of the largest element.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
import numpy as np
from mlir.dialects import arith, math, tensor

from stablexla.lowering.rules.calls.custom_call import operation_call
from stablexla.lowering.rules.calls.layouts import OPERANDS, RESULTS, in_columns, layouts_of, row_major
from stablexla.lowering.rules.linear_algebra import Field
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import add, choose, count, empties, is_less, number, repeat, sub
from stablexla.lowering.support.scalars import cmpf
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import TensorType

TARGET = "tridiagonal_solve_perturbed_ffi"


@operation_call(TARGET)
def tridiagonal_solve_perturbed(
    ctx: LoweringContext, low: ir.Value, middle: ir.Value, up: ir.Value, right: ir.Value
) -> ir.Value:
    """The solutions of a batch of tridiagonal systems, each of many right-hand sides."""
    _check(ctx)
    diagonal, sides = (_flat(t, rank) for t, rank in zip(ctx.operand_types[2:], (1, 2), strict=True))
    given = [reshaped(v, t, diagonal) for v, t in zip((low, middle, up), ctx.operand_types, strict=False)]
    if not sides.size:
        return empties([ctx.result])[0]

    def body(*arrays: ir.Value) -> list[ir.Value]:
        system = _System(sides, *arrays)
        return count(0, sides.shape[0], empties([sides]), system.of_matrix)

    operands = [*given, reshaped(right, ctx.operand_types[3], sides)]
    made = kernel(ctx, "tridiagonal_solve", operands, body, result_types=[sides], independent=True)
    return reshaped(made[0], sides, ctx.result)


def _check(ctx: LoweringContext) -> None:
    *diagonals, right = ctx.operand_types
    shapes = {t.shape for t in diagonals}
    same = {t.element for t in (*diagonals, right)} == {ctx.result.element} and ctx.result == right
    if not same or shapes != {right.shape[:-1]} or not (ctx.result.element.is_float or ctx.result.element.is_complex):
        raise ctx.unsupported(f"{TARGET} takes three diagonals [...,n] and right-hand sides [...,n,r] of one type")
    if ctx.result.element.part.bits < 32:
        raise ctx.unsupported(f"{TARGET} takes elements of 32 bits and more")
    layouts = layouts_of(ctx, OPERANDS, ctx.operand_types)
    in_rows = [side == row_major(side.type) for side in layouts[:3]]
    columns = [side == in_columns(side.type) for side in (layouts[3], *layouts_of(ctx, RESULTS, ctx.result_types))]
    if not all(in_rows) or not all(columns):
        raise ctx.unsupported(f"{TARGET} takes right-hand sides that lie in columns")


def _flat(type_: TensorType, rank: int) -> TensorType:
    """Return the type with the batch dimensions collapsed into one."""
    split = type_.rank - rank
    return type_.with_shape((int(np.prod(type_.shape[:split], dtype=np.int64)), *type_.shape[split:]))


class _System:
    """Gaussian elimination of one tridiagonal matrix; u holds the rows of the upper factor, of three diagonals."""

    def __init__(self, type_: TensorType, low: ir.Value, middle: ir.Value, up: ir.Value, right: ir.Value) -> None:
        self.low, self.middle, self.up, self.right = low, middle, up, right
        self.n, self.sides = type_.shape[1:]
        self.field = Field(type_.element)
        self.u_type = TensorType(type_.element, (self.n, 3))
        limits = np.finfo(type_.element.part.dtype)
        self.epsilon = self.real(limits.eps)
        self.safe, self.large = self.real(limits.tiny), self.real(1 / limits.tiny)

    def real(self, x: float) -> ir.Value:
        return constant(self.field.real, float(x))

    def of_matrix(self, batch: ir.Value, x: ir.Value) -> list[ir.Value]:
        """Emit the elimination and back substitution for all right-hand sides of one matrix."""
        zero = self.field.constant(0.0)
        (u,) = empties([self.u_type])
        first = [tensor.extract(v, [batch, number(0)]) for v in (self.middle, self.up)]
        u = self._row(u, number(0), [first[0], first[1] if self.n > 1 else zero, zero])
        x = self._each(lambda s, x: tensor.insert(self._given(batch, number(0), s), x, [batch, number(0), s]), x)
        scale = arith.addf(*map(self.field.absolute, first)) if self.n > 1 else self.field.absolute(first[0])

        def step(k: ir.Value, u: ir.Value, x: ir.Value, scale: ir.Value) -> list[ir.Value]:
            return self._eliminate(batch, k, u, x, scale)

        u, x, _ = count(0, self.n - 1, [u, x, scale], step)
        amount = arith.mulf(self.epsilon, self._largest(u))

        def back(iteration: ir.Value, x: ir.Value) -> list[ir.Value]:
            return [self._substitute(batch, sub(number(self.n - 1), iteration), u, x, amount)]

        return count(0, self.n, [x], back)

    # ---- forwards --------------------------------------------------------------------------------------------------

    def _eliminate(self, batch: ir.Value, k: ir.Value, u: ir.Value, x: ir.Value, scale: ir.Value) -> list[ir.Value]:
        """Eliminate the first element of row k + 1: row k of u is final then, and row k + 1 begun."""
        field, following = self.field, add(k, 1)
        zero, real_zero = field.constant(0.0), self.real(0.0)
        a, b = (tensor.extract(v, [batch, following]) for v in (self.low, self.middle))
        last = is_less(following, self.n - 1)
        c = arith.select(last, tensor.extract(self.up, [batch, following]), zero)
        p, q = (tensor.extract(u, [k, number(i)]) for i in (0, 1))
        size_a, size_p = field.absolute(a), field.absolute(p)
        here = arith.addf(arith.addf(size_a, field.absolute(b)), field.absolute(c))
        own = arith.select(cmpf("OEQ", size_p, real_zero), real_zero, arith.divf(size_p, scale))
        is_zero = cmpf("OEQ", size_a, real_zero)
        stays = arith.ori(is_zero, cmpf("OLE", arith.divf(size_a, here), own))

        def stay() -> list[ir.Value]:
            factor = arith.select(is_zero, zero, field.divide(a, p))
            begun = self._row(u, following, [field.subtract_product(b, factor, q), c, zero])
            return [begun, self._forward(batch, k, x, factor, exchanged=False), here]

        def exchange() -> list[ir.Value]:
            factor = field.divide(p, a)
            rest = field.subtract_product(q, factor, b)
            more = field.subtract_product(zero, factor, c)
            begun = self._row(self._row(u, k, [a, b, c]), following, [rest, more, zero])
            size = arith.addf(field.absolute(rest), field.absolute(more))
            return [begun, self._forward(batch, k, x, factor, exchanged=True), size]

        return choose(stays, [u.type, x.type, scale.type], stay, exchange)

    def _forward(self, batch: ir.Value, k: ir.Value, x: ir.Value, factor: ir.Value, *, exchanged: bool) -> ir.Value:
        """Apply an elimination step to the right-hand sides, of which x has the first k + 1 rows."""
        following = add(k, 1)

        def one(s: ir.Value, x: ir.Value) -> ir.Value:
            above, below = tensor.extract(x, [batch, k, s]), self._given(batch, following, s)
            if exchanged:
                x = tensor.insert(below, x, [batch, k, s])
                above, below = below, above
            return tensor.insert(self.field.subtract_product(below, factor, above), x, [batch, following, s])

        return self._each(one, x)

    def _largest(self, u: ir.Value) -> ir.Value:
        """Return the largest absolute value in u."""

        def row(k: ir.Value, most: ir.Value) -> list[ir.Value]:
            for i in range(3):
                most = arith.maximumf(most, self.field.absolute(tensor.extract(u, [k, number(i)])))
            return [most]

        return count(0, self.n, [self.real(0.0)], row)[0]

    # ---- backwards -------------------------------------------------------------------------------------------------

    def _substitute(self, batch: ir.Value, k: ir.Value, u: ir.Value, x: ir.Value, amount: ir.Value) -> ir.Value:
        """Back substitution: solve for element k, those after it being known."""
        pivot, *others = (tensor.extract(u, [k, number(i)]) for i in range(3))

        def known(s: ir.Value, x: ir.Value) -> ir.Value:
            value = tensor.extract(x, [batch, k, s])
            for distance, factor in enumerate(others, 1):
                place = add(k, distance)
                inside = is_less(place, self.n)
                there = arith.select(inside, place, k)  # row n is out of bounds
                product = self.field.multiply(factor, tensor.extract(x, [batch, there, s]))
                taken = arith.select(inside, product, self.field.constant(0.0))
                value = self.field.subtract(value, taken)
            return tensor.insert(value, x, [batch, k, s])

        x = self._each(known, x)
        most = count(
            0,
            self.sides,
            [self.real(0.0)],
            lambda s, most: [arith.maximumf(most, self.field.absolute(tensor.extract(x, [batch, k, s])))],
        )[0]
        pivot, factor = self._kept_from_zero(pivot, most, amount)
        inverse = self.field.divide(self.field.constant(1.0), pivot)

        def divided(s: ir.Value, x: ir.Value) -> ir.Value:
            value = self.field.multiply(tensor.extract(x, [batch, k, s]), self.field.of_real(factor))
            return tensor.insert(self.field.multiply(value, inverse), x, [batch, k, s])

        return self._each(divided, x)

    def _kept_from_zero(self, pivot: ir.Value, most: ir.Value, amount: ir.Value) -> list[ir.Value]:
        """Return a perturbed pivot by which `most` can be divided, and the scale for the right-hand sides before."""
        field, true = self.field, constant(ir.IntegerType.get_signless(1), 1)
        begin = math.copysign(arith.maximumf(amount, self.safe), field.real_part(pivot))

        def going(pivot: ir.Value, factor: ir.Value, amount: ir.Value, on: ir.Value) -> ir.Value:
            return arith.andi(on, cmpf("OLT", field.absolute(pivot), self.real(1.0)))

        def iteration(pivot: ir.Value, factor: ir.Value, amount: ir.Value, on: ir.Value) -> list[ir.Value]:
            size = field.absolute(pivot)
            tiny = cmpf("OLT", size, self.safe)
            hopeless = arith.ori(cmpf("OEQ", size, self.real(0.0)), cmpf("OGT", arith.mulf(most, self.safe), size))
            too_small = arith.select(tiny, hopeless, cmpf("OGT", most, arith.mulf(size, self.large)))
            scales = arith.andi(tiny, arith.xori(too_small, true))
            moved = field.add(pivot, field.of_real(amount))
            scaled = field.multiply(pivot, field.of_real(self.large))
            return [
                arith.select(too_small, moved, arith.select(scales, scaled, pivot)),
                arith.select(scales, self.large, factor),
                arith.select(too_small, arith.mulf(amount, self.real(2.0)), amount),
                too_small,
            ]

        return repeat([pivot, self.real(1.0), begin, true], going, iteration)[:2]

    # ---- arrays ----------------------------------------------------------------------------------------------------

    def _given(self, batch: ir.Value, row: ir.Value, side: ir.Value) -> ir.Value:
        return tensor.extract(self.right, [batch, row, side])

    def _each(self, change: Callable[[ir.Value, ir.Value], ir.Value], x: ir.Value) -> ir.Value:
        """Apply a change to one element of each right-hand side."""
        return count(0, self.sides, [x], lambda s, x: [change(s, x)])[0]

    @staticmethod
    def _row(u: ir.Value, k: ir.Value, values: list[ir.Value]) -> ir.Value:
        for i, value in enumerate(values):
            u = tensor.insert(value, u, [k, number(i)])
        return u
