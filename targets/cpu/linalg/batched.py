"""Batched Cholesky factorization and triangular solve of small matrices, vectorized with one matrix in each lane.

The elements of as many matrices as there are lanes are interleaved first by in-register transposes. Dot products of a
few rows or right-hand sides are accumulated at once, to hide the latency of the FMAs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import math

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.linear_algebra import CholeskyConfig, TriangularSolveConfig
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.sizes import element_bytes
from stablexla.targets.codegen.vector_loops import grain_of

# The largest matrix vectorized across the batch, if a thread's stack has room.
LARGEST = Gate("linalg.largest-in-lanes", 64, eager=2)
ROOM = Gate("linalg.room-in-lanes", 1 << 18, eager=4 << 10)
# Independent accumulators in flight.
ACCUMULATORS = 4

Number = tuple[Value, ...]


@dataclass(frozen=True)
class LaneField:
    """Arithmetic on real or complex numbers in lanes: one vector of real parts, or one each of both parts."""

    part: ir.Type
    lanes: int
    parts: int

    @classmethod
    def of(cls, element: ir.Type, target: CpuTarget) -> LaneField:
        part = element.element_type if isinstance(element, ir.ComplexType) else element
        lanes = max(2, target.vector_bits // (8 * element_bytes(part)))
        return cls(part, lanes, 2 if isinstance(element, ir.ComplexType) else 1)

    @property
    def type(self) -> ir.Type:
        return cg.vector_of(self.lanes, self.part)

    def constant(self, real: float) -> Number:
        return (cg.constant(real, self.type), cg.constant(0.0, self.type))[: self.parts]

    def subtract_product(self, s: Number, x: Number, y: Number) -> Number:
        """Return s - x * y, by FMA."""
        if self.parts == 1:
            return (cg.fma(-x[0], y[0], s[0]),)
        re = cg.fma(x[1], y[1], cg.fma(-x[0], y[0], s[0]))
        return re, cg.fma(-x[1], y[0], cg.fma(-x[0], y[1], s[1]))

    def conjugate(self, x: Number) -> Number:
        return x if self.parts == 1 else (x[0], -x[1])

    def divide(self, x: Number, y: Number) -> Number:
        """Divide x / y; |y|^2 is scaled by a power of two that keeps it from leaving the range of the type."""
        if self.parts == 1:
            return (x[0] / y[0],)
        larger = Value(math.absf(y[0].ssa)), Value(math.absf(y[1].ssa))
        steep = larger[0].lt(larger[1])
        a, b = cg.select(steep, y[1], y[0]), cg.select(steep, y[0], y[1])
        ratio = b / a
        below = cg.fma(b, ratio, a)
        # (x0 + i x1) / (a + i b), and for b + i a the same of (x1 - i x0) / (a - i b).
        p, q, r = cg.select(steep, x[1], x[0]), cg.select(steep, -x[0], x[1]), cg.select(steep, -ratio, ratio)
        return cg.fma(q, r, p) / below, cg.fma(-p, r, q) / below


@dataclass(frozen=True)
class InterleavedMatrices:
    """Interleaved matrices, one per lane: element number k of all of them at k."""

    field: LaneField
    buffer: Value

    def get(self, at: Index) -> Number:
        width = self.field.lanes
        place = cg.index(at) * (width * self.field.parts)
        return tuple(cg.load(self.buffer, place + i * width, width) for i in range(self.field.parts))

    def put(self, value: Number, at: Index) -> None:
        width = self.field.lanes
        place = cg.index(at) * (width * self.field.parts)
        for i, part in enumerate(value):
            cg.store(part, self.buffer, place + i * width)

    def gather(self, parts: Value, starts: Sequence[Value], count: int) -> None:
        """Load and interleave `count` elements of each lane's matrix, which begin at `starts` of an array's parts."""
        lanes, kinds = self.field.lanes, self.field.parts
        whole = count * kinds // lanes * lanes
        with cg.loop(0, whole, lanes) as iteration:
            rows = cg.transpose_registers([cg.load(parts, start + iteration.iv, lanes) for start in starts])
            for i, row in enumerate(rows):
                cg.store(row, self.buffer, (iteration.iv + i) * lanes)
        with cg.loop(whole, count * kinds) as iteration:
            row = cg.constant(0.0, self.field.type)
            for lane, start in enumerate(starts):
                row = cg.insert(cg.load(parts, start + iteration.iv), row, lane)
            cg.store(row, self.buffer, iteration.iv * lanes)

    def scatter(self, parts: Value, starts: Sequence[Value], count: int) -> None:
        """De-interleave and store: the inverse of `gather`."""
        lanes, kinds = self.field.lanes, self.field.parts
        whole = count * kinds // lanes * lanes
        with cg.loop(0, whole, lanes) as iteration:
            rows = [cg.load(self.buffer, (iteration.iv + i) * lanes, lanes) for i in range(lanes)]
            for start, row in zip(starts, cg.transpose_registers(rows), strict=True):
                cg.store(row, parts, start + iteration.iv)
        with cg.loop(whole, count * kinds) as iteration:
            row = cg.load(self.buffer, iteration.iv * lanes, lanes)
            for lane, start in enumerate(starts):
                cg.store(cg.extract(row, lane), parts, start + iteration.iv)


def unrolled_loop(low: Index, high: Index, write: Callable[[Value, int], None]) -> None:
    """Emit `write(i, count)` for i from low to high, unrolled by ABREAST, with a remainder loop one by one."""
    first, last = cg.index(low), cg.index(high)
    middle = first + (last - first) // ACCUMULATORS * ACCUMULATORS
    with cg.loop(first, middle, ACCUMULATORS) as iteration:
        write(iteration.iv, ACCUMULATORS)
    with cg.loop(middle, last) as iteration:
        write(iteration.iv, 1)


def accumulate_numbers(
    low: Index, high: Index, starts: Sequence[Number], step: Callable[[Value, list[Number]], list[Number]]
) -> list[Number]:
    """Emit a loop that carries accumulators, real or complex."""
    kinds = len(starts[0])
    with cg.loop(low, high, 1, [part for number in starts for part in number]) as iteration:
        carried = [tuple(iteration.args[i : i + kinds]) for i in range(0, len(iteration.args), kinds)]
        iteration.yields(*(part for number in step(iteration.iv, carried) for part in number))
    flat = iteration.results
    return [tuple(flat[i : i + kinds]) for i in range(0, len(flat), kinds)]


def _fits(field: LaneField, batch: int, n: int, elements: int) -> bool:
    room = elements * field.parts * field.lanes * element_bytes(field.part) <= ROOM()
    return n <= LARGEST() and room and 2 * batch >= field.lanes


# ---- cholesky --------------------------------------------------------------------------------------------------------


def emit_cholesky_in_lanes(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit Cholesky factorizations vectorized across the batch, one matrix per lane."""
    batch, n, _ = kernel.results[0].type.shape
    with kernel.func.context:
        field = LaneField.of(kernel.results[0].type.element_type, target)
    if not _fits(field, batch, n, n * n):
        return None
    items = -(-batch // field.lanes)
    with kernel.phase(target) as arguments:
        given, made = cg.as_parts(arguments.inputs[0]), cg.as_parts(arguments.results[0])
        side = InterleavedMatrices(field, cg.alloca(n * n * field.parts * field.lanes, field.part))
        with arguments.items(items) as item:
            starts = _starts(item, field, batch, n * n)
            side.gather(given, starts, n * n)
            _Factor(field, side, n, kernel.config(CholeskyConfig).lower).write()
            side.scatter(made, starts, n * n)
    return Emitted(items, grain_of(n * n * (n + 6) * 0.3 * field.parts**2, items), in_place=((0, 0),))


def _starts(block: Value, field: LaneField, batch: int, size: int) -> list[Value]:
    """Return the offset of each lane's matrix; the surplus lanes of the last block repeat the last matrix."""
    places = [cg.minimum(block * field.lanes + lane, batch - 1) for lane in range(field.lanes)]
    return [place * (size * field.parts) for place in places]


@dataclass(frozen=True)
class _Factor:
    """In-place Cholesky: x_ij = (a_ij - sum over k < j of x_ik * conj(x_jk)) / x_jj, with x_ij for l_ij or u_ji."""

    field: LaneField
    side: InterleavedMatrices
    n: int
    lower: bool

    def at(self, i: Value, j: Value) -> Value:
        return i * self.n + j if self.lower else j * self.n + i

    def write(self) -> None:
        good = cg.constant(1, cg.vector_of(self.field.lanes, ir.IntegerType.get_signless(1)))
        with cg.loop(0, self.n, 1, [good]) as columns:
            j = columns.iv
            (rest,) = self._rests(j, j, 1)
            diagonal = Value(math.sqrt(rest[0].ssa))
            self.side.put((diagonal, self.field.constant(0.0)[0])[: self.field.parts], self.at(j, j))
            unrolled_loop(j + 1, self.n, lambda i, count: self._divided(i, j, count, diagonal))
            with cg.loop(0, j) as above:
                self.side.put(self.field.constant(0.0), self.at(above.iv, j))
            columns.yields(columns.args[0] & rest[0].gt(0.0))
        spoiled = self.field.constant(float("nan"))[0]
        with cg.loop(0, self.n * self.n) as iteration:
            value = self.side.get(iteration.iv)
            self.side.put((cg.select(columns.results[0], value[0], spoiled), *value[1:]), iteration.iv)

    def _divided(self, i: Value, j: Value, count: int, diagonal: Value) -> None:
        for row, rest in enumerate(self._rests(i, j, count)):
            self.side.put(tuple(part / diagonal for part in rest), self.at(i + row, j))

    def _rests(self, i: Value, j: Value, count: int) -> list[Number]:
        """Return a_ij minus the dot product with the columns before j, for `count` rows from i on."""

        def step(k: Value, totals: list[Number]) -> list[Number]:
            y = self.field.conjugate(self.side.get(self.at(j, k)))
            rows = [self.side.get(self.at(i + row, k)) for row in range(count)]
            return [self.field.subtract_product(s, x, y) for s, x in zip(totals, rows, strict=True)]

        return accumulate_numbers(0, j, [self.side.get(self.at(i + row, j)) for row in range(count)], step)


# ---- triangular systems ----------------------------------------------------------------------------------------------


def emit_solve_in_lanes(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit triangular solves vectorized across the batch, one system per lane."""
    batch, rows, columns = kernel.results[0].type.shape
    n, size = kernel.inputs[0].type.shape[-1], rows * columns
    with kernel.func.context:
        field = LaneField.of(kernel.results[0].type.element_type, target)
    if not _fits(field, batch, n, n * n + size):
        return None
    items = -(-batch // field.lanes)
    with kernel.phase(target) as arguments:
        a, b, made = (cg.as_parts(v) for v in (*arguments.inputs, *arguments.results))
        matrix = InterleavedMatrices(field, cg.alloca(n * n * field.parts * field.lanes, field.part))
        right = InterleavedMatrices(field, cg.alloca(size * field.parts * field.lanes, field.part))
        with arguments.items(items) as item:
            matrix.gather(a, _starts(item, field, batch, n * n), n * n)
            starts = _starts(item, field, batch, size)
            right.gather(b, starts, size)
            _System(field, matrix, right, n, size // n, kernel.config(TriangularSolveConfig)).write()
            right.scatter(made, starts, size)
    return Emitted(items, grain_of(size * (n + 6) * 0.5 * field.parts**2, items), in_place=((0, 1),))


class _System:
    """Forward or backward substitution: x_i = (b_i - sum over k of m_ik * x_k) / m_ii, in place of b."""

    def __init__(
        self,
        field: LaneField,
        matrix: InterleavedMatrices,
        right: InterleavedMatrices,
        n: int,
        others: int,
        config: TriangularSolveConfig,
    ) -> None:
        self.field, self.given, self.right, self.n, self.others = field, matrix, right, n, others
        self.left, self.unit = config.left_side, config.unit_diagonal
        self.conjugated = config.transpose_a == "ADJOINT"
        self.swapped = (config.transpose_a != "NO_TRANSPOSE") == self.left
        self.forward = config.lower != self.swapped

    def matrix(self, i: Value, k: Value) -> Number:
        value = self.given.get(k * self.n + i if self.swapped else i * self.n + k)
        return self.field.conjugate(value) if self.conjugated else value

    def at(self, i: Value, other: Value) -> Value:
        return i * self.others + other if self.left else other * self.n + i

    def write(self) -> None:
        with cg.loop(0, self.n) as iteration:
            i = iteration.iv if self.forward else cg.index(self.n - 1) - iteration.iv
            unrolled_loop(0, self.others, lambda other, count: self._elements(iteration.iv, i, other, count))

    def _elements(self, iteration: Value, i: Value, other: Value, count: int) -> None:
        places = [other + c for c in range(count)]

        def step(before: Value, totals: list[Number]) -> list[Number]:
            k = before if self.forward else cg.index(self.n - 1) - before
            m = self.matrix(i, k)
            xs = [self.right.get(self.at(k, place)) for place in places]
            return [self.field.subtract_product(s, m, x) for s, x in zip(totals, xs, strict=True)]

        rests = accumulate_numbers(0, iteration, [self.right.get(self.at(i, place)) for place in places], step)
        for place, rest in zip(places, rests, strict=True):
            x = rest if self.unit else self.field.divide(rest, self.matrix(i, i))
            self.right.put(x, self.at(i, place))
