"""Reference body of a Fourier transform's plan, on tensors: correct for every length, in n log n steps.

Arrays are tensors of complex numbers [outer, n, inner] throughout. A target's emitter vectorizes the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mlir.ir as ir
from mlir.dialects import arith, complex, tensor

from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.kernels.fft.plan import Axis, Bluestein, Direct, Line, Pass, Rader, RealLine, Split, Transform
from stablexla.lowering.kernels.fft.tables import Powers, Table
from stablexla.lowering.math.complex.arithmetic import BINARY, create
from stablexla.lowering.rules.conversion import in_element_type
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support.generic import (
    PARALLEL,
    REDUCTION,
    Output,
    generic,
    identity,
    loop_index,
    projection,
)
from stablexla.lowering.support.loops import add, as_index, is_equal, is_less, mul, number, quotient, remainder, sub
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import TensorType

Tables = Mapping[Table, ir.Value]
Element = Callable[..., ir.Value]
# The computing type, also for f32: the result is as good as the exact one rounded once, which numpy's is too.
WHOLE = BY_NAME["c128"]


def transform(plan: Transform, given: ir.Value, source: TensorType, result: TensorType, tables: Tables) -> ir.Value:
    """Emit the body: one axis after the other, then the scale of an inverse transform; all of it in f64."""
    writer = _Writer(tables)
    before, after = _wide(source), _wide(result)
    value, type_ = in_element_type(given, source, before.element), before
    for axis in plan.axes:
        if not isinstance(axis.plan, RealLine):
            value = writer.along(axis, value, type_)
            continue
        real = TensorType(WHOLE.part, (axis.outer, axis.plan.n))
        kept = TensorType(WHOLE, (axis.outer, axis.plan.n // 2 + 1))
        if plan.kind == "RFFT":
            value = reshaped(writer.from_real(axis.plan, reshaped(value, type_, real), axis.outer), kept, after)
            type_ = after
        else:
            value = reshaped(writer.to_real(axis.plan, reshaped(value, type_, kept), axis.outer), real, after)
    value = value if plan.scale == 1.0 else writer.scaled(value, after, plan.scale)
    return in_element_type(value, after, result.element)


def _wide(type_: TensorType) -> TensorType:
    return TensorType(WHOLE if type_.element.is_complex else WHOLE.part, type_.shape)


class _Writer:
    """Emitter of the loops of a transform over arrays of complex numbers."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    # ---- shapes of loops --------------------------------------------------------------------------------------------

    def type(self, *shape: int) -> TensorType:
        return TensorType(WHOLE, shape)

    def each(self, result: TensorType, element: Element) -> ir.Value:
        """Emit the array whose elements are `element(*indices)`."""
        rank = result.rank

        def body(_: Sequence[ir.Value]) -> list[ir.Value]:
            return [element(*(loop_index(d) for d in range(rank)))]

        return generic([], [Output(result)], [identity(rank)], [PARALLEL] * rank, body)[0]

    def root(self, table: Table, at: ir.Value | int) -> ir.Value:
        """Load a root of unity from a table."""
        place = number(at) if isinstance(at, int) else at
        planes = self.tables[table]
        return create(*(tensor.extract(planes, [number(plane), place]) for plane in (0, 1)))

    def product_of_roots(self, fine: Powers, coarse: Powers | None, row: ir.Value, column: ir.Value) -> ir.Value:
        """Load an element of a table of roots, or the product of its fine and coarse tables."""
        if coarse is None:
            return self.root(fine, add(mul(row, fine.columns), column))
        inside, outside = remainder(row, fine.rows), quotient(row, fine.rows)
        return _multiply(
            self.root(fine, add(mul(inside, fine.columns), column)),
            self.root(coarse, add(mul(outside, coarse.columns), column)),
        )

    def scaled(self, value: ir.Value, type_: TensorType, factor: float) -> ir.Value:
        def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
            x = arguments[0]
            if not type_.element.is_complex:
                return [arith.mulf(x, constant(x.type, factor))]
            parts = (complex.re(x), complex.im(x))
            return [create(*(arith.mulf(part, constant(part.type, factor)) for part in parts))]

        rank = type_.rank
        return generic([value], [Output(type_)], [identity(rank)] * 2, [PARALLEL] * rank, body)[0]

    # ---- along one dimension ----------------------------------------------------------------------------------------

    def along(self, axis: Axis, value: ir.Value, type_: TensorType) -> ir.Value:
        """Emit a complex transform of one dimension."""
        assert not isinstance(axis.plan, RealLine)
        flat = self.type(axis.outer, axis.plan.n, axis.inner)
        return reshaped(self.line(axis.plan, reshaped(value, type_, flat), axis.outer, axis.inner), flat, type_)

    def line(self, plan: Line, x: ir.Value, outer: int, inner: int) -> ir.Value:
        """Transform x[outer, n, inner] along n by its plan."""
        if isinstance(plan, Direct):
            return self.passes(plan, x, outer, inner)
        if isinstance(plan, Split):
            return self.split(plan, x, outer, inner)
        if isinstance(plan, Rader):
            return self.prime(plan, x, outer, inner)
        return self.convolution(plan, x, outer, inner)

    def passes(self, plan: Direct, x: ir.Value, outer: int, inner: int) -> ir.Value:
        whole = self.type(outer, plan.n, inner)
        for step in plan.passes:
            before = self.type(outer, step.done, step.radix, step.rest * inner)
            after = self.type(outer, step.radix, step.done, step.rest * inner)
            x = reshaped(self.one_pass(step, reshaped(x, whole, before), after), after, whole)
        return x

    def one_pass(self, step: Pass, x: ir.Value, after: TensorType) -> ir.Value:
        """Emit a radix pass: sums over t of in[o, k, t, q] times its root, in loops over o, k, j, t, q."""

        def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
            term, total = arguments
            k, j, t = (loop_index(d) for d in (1, 2, 3))
            if step.twiddles is not None:
                term = _multiply(term, self.root(step.twiddles, add(mul(k, step.radix), t)))
            term = _multiply(term, self.root(step.roots, remainder(mul(j, t), step.radix)))
            return [_add(total, term)]

        zero = constant(_part(after), 0.0)
        maps = [projection(5, (0, 1, 3, 4)), projection(5, (0, 2, 1, 4))]
        iterators = [PARALLEL, PARALLEL, PARALLEL, REDUCTION, PARALLEL]
        return generic([x], [Output(after, create(zero, zero))], maps, iterators, body)[0]

    def split(self, plan: Split, x: ir.Value, outer: int, inner: int) -> ir.Value:
        n, m = plan.columns.n, plan.rows.n
        whole = self.type(outer, n * m, inner)
        shape = self.type(outer, n, m * inner)
        x = self.passes(plan.columns, reshaped(x, whole, shape), outer, m * inner)
        turned = self.type(outer, m, n, inner)

        def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
            factor = self.product_of_roots(plan.fine, plan.coarse, loop_index(2), loop_index(1))
            return [_multiply(arguments[0], factor)]

        x = reshaped(x, shape, self.type(outer, n, m, inner))
        maps = [projection(4, (0, 2, 1, 3)), identity(4)]
        x = generic([x], [Output(turned)], maps, [PARALLEL] * 4, body)[0]
        rows = self.type(outer, m, n * inner)
        return reshaped(self.passes(plan.rows, reshaped(x, turned, rows), outer, n * inner), rows, whole)

    def convolution(self, plan: Bluestein, x: ir.Value, outer: int, inner: int) -> ir.Value:
        n, m = plan.n, plan.inner.n
        padded, zero = self.type(outer, m, inner), constant(_part(self.type()), 0.0)

        def chirped(o: ir.Value, j: ir.Value, i: ir.Value) -> ir.Value:
            inside = is_less(j, n)
            place = arith.select(inside, j, number(0))
            value = _multiply(tensor.extract(x, [o, place, i]), self.root(plan.chirp, place))
            return arith.select(inside, value, create(zero, zero))

        spectrum = self.line(plan.inner, self.each(padded, chirped), outer, inner)

        def conjugate_product(o: ir.Value, j: ir.Value, i: ir.Value) -> ir.Value:
            return _conjugate(_multiply(tensor.extract(spectrum, [o, j, i]), self.root(plan.spectrum, j)))

        y = self.line(plan.inner, self.each(padded, conjugate_product), outer, inner)

        def back(o: ir.Value, j: ir.Value, i: ir.Value) -> ir.Value:
            return _multiply(_conjugate(tensor.extract(y, [o, j, i])), self.root(plan.chirp, j))

        return self.each(self.type(outer, n, inner), back)

    def place(self, table: Table, plane: int, at: ir.Value) -> ir.Value:
        """Load an integer of a permutation table."""
        found = tensor.extract(self.tables[table], [number(plane), at])
        return as_index(arith.fptoui(ir.IntegerType.get_signless(32), found))

    def prime(self, plan: Rader, x: ir.Value, outer: int, inner: int) -> ir.Value:
        n, before = plan.n, self.type(outer, plan.n - 1, inner)

        def ordered(o: ir.Value, k: ir.Value, i: ir.Value) -> ir.Value:
            return tensor.extract(x, [o, self.place(plan.places, 0, k), i])

        spectrum = self.line(plan.inner, self.each(before, ordered), outer, inner)

        def conjugate_product(o: ir.Value, k: ir.Value, i: ir.Value) -> ir.Value:
            value = _multiply(tensor.extract(spectrum, [o, k, i]), self.root(plan.spectrum, k))
            shifted = _add(value, tensor.extract(x, [o, number(0), i]))
            return _conjugate(arith.select(is_equal(k, 0), shifted, value))

        y = self.line(plan.inner, self.each(before, conjugate_product), outer, inner)

        def back(o: ir.Value, j: ir.Value, i: ir.Value) -> ir.Value:
            first = is_equal(j, 0)
            at = arith.select(first, number(0), self.place(plan.places, 1, arith.select(first, j, sub(j, 1))))
            total = _add(tensor.extract(x, [o, number(0), i]), tensor.extract(spectrum, [o, number(0), i]))
            return arith.select(first, total, _conjugate(tensor.extract(y, [o, at, i])))

        return self.each(self.type(outer, n, inner), back)

    # ---- between real numbers and the half spectrum -----------------------------------------------------------------

    def unit(self, plan: RealLine, k: ir.Value) -> ir.Value:
        """Load the k-th root of unity of a real transform's table."""
        assert plan.fine is not None
        if plan.coarse is None:
            return self.root(plan.fine, k)
        inside, outside = remainder(k, plan.fine.columns), quotient(k, plan.fine.columns)
        return _multiply(self.root(plan.fine, inside), self.root(plan.coarse, outside))

    def from_real(self, plan: RealLine, x: ir.Value, outer: int) -> ir.Value:
        """Emit a real-input FFT of x[outer, n]: the half spectrum, of n // 2 + 1 elements."""
        zero = constant(_part(self.type()), 0.0)
        kept = self.type(outer, plan.n // 2 + 1)
        if plan.fine is None:
            y = self.each(self.type(outer, plan.n, 1), lambda o, j, _: create(tensor.extract(x, [o, j]), zero))
            y = self.line(plan.inner, y, outer, 1)
            return self.each(kept, lambda o, k: tensor.extract(y, [o, k, number(0)]))
        half = plan.n // 2

        def pair(o: ir.Value, j: ir.Value, _: ir.Value) -> ir.Value:
            first = mul(j, 2)
            return create(tensor.extract(x, [o, first]), tensor.extract(x, [o, add(first, 1)]))

        y = self.line(plan.inner, self.each(self.type(outer, half, 1), pair), outer, 1)

        def joined(o: ir.Value, k: ir.Value) -> ir.Value:
            at, mirrored = remainder(k, half), remainder(sub(number(half), k), half)
            a = tensor.extract(y, [o, at, number(0)])
            b = _conjugate(tensor.extract(y, [o, mirrored, number(0)]))
            odd = _multiply(_subtract(a, b), self.unit(plan, k))
            return _halved(_add(_add(a, b), create(complex.im(odd), arith.negf(complex.re(odd)))))

        return self.each(kept, joined)

    def to_real(self, plan: RealLine, x: ir.Value, outer: int) -> ir.Value:
        """Emit the inverse real FFT of a half spectrum x[outer, n // 2 + 1]; not divided by n."""
        real = TensorType(WHOLE.part, (outer, plan.n))
        half = plan.n // 2
        if plan.fine is None:
            full = self.each(self.type(outer, plan.n, 1), lambda o, k, _: self.mirrored(x, o, k, plan.n))
            y = self.line(plan.inner, full, outer, 1)
            return self.each(real, lambda o, j: complex.re(tensor.extract(y, [o, j, number(0)])))

        def apart(o: ir.Value, k: ir.Value, _: ir.Value) -> ir.Value:
            a = self.without_edges(tensor.extract(x, [o, k]), k, half)
            other = sub(number(half), k)
            b = _conjugate(self.without_edges(tensor.extract(x, [o, other]), other, half))
            odd = _multiply(_subtract(a, b), self.unit(plan, k))
            return _add(_add(a, b), create(arith.negf(complex.im(odd)), complex.re(odd)))

        y = self.line(plan.inner, self.each(self.type(outer, half, 1), apart), outer, 1)

        def part(o: ir.Value, j: ir.Value) -> ir.Value:
            pair = tensor.extract(y, [o, quotient(j, 2), number(0)])
            even = arith.cmpi(arith.CmpIPredicate.eq, remainder(j, 2), number(0))
            return arith.select(even, complex.re(pair), complex.im(pair))

        return self.each(real, part)

    def without_edges(self, value: ir.Value, k: ir.Value, half: int) -> ir.Value:
        """Return element k of a half spectrum; the first and the last one are taken to be real."""
        edge = arith.cmpi(arith.CmpIPredicate.eq, remainder(k, half), number(0))
        zero = constant(_part(self.type()), 0.0)
        return create(complex.re(value), arith.select(edge, zero, complex.im(value)))

    def mirrored(self, x: ir.Value, o: ir.Value, k: ir.Value, n: int) -> ir.Value:
        """Load element k of the whole spectrum of an odd number of real numbers; the first is taken to be real."""
        inside = is_less(k, n // 2 + 1)
        other = sub(number(n), k)
        value = tensor.extract(x, [o, arith.select(inside, k, other)])
        imaginary = arith.select(inside, complex.im(value), arith.negf(complex.im(value)))
        first = arith.cmpi(arith.CmpIPredicate.eq, k, number(0))
        return create(complex.re(value), arith.select(first, constant(imaginary.type, 0.0), imaginary))


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _part(type_: TensorType) -> ir.Type:
    return ir.Type.parse(type_.element.part.mlir)


def _add(x: ir.Value, y: ir.Value) -> ir.Value:
    return BINARY["add"](x, y, WHOLE)


def _subtract(x: ir.Value, y: ir.Value) -> ir.Value:
    return BINARY["subtract"](x, y, WHOLE)


def _multiply(x: ir.Value, y: ir.Value) -> ir.Value:
    return BINARY["multiply"](x, y, WHOLE)


def _conjugate(x: ir.Value) -> ir.Value:
    return create(complex.re(x), arith.negf(complex.im(x)))


def _halved(x: ir.Value) -> ir.Value:
    half = constant(complex.re(x).type, 0.5)
    return create(arith.mulf(complex.re(x), half), arith.mulf(complex.im(x), half))
