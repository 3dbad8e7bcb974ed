"""Dot-product loops of skinny products: a thread's partial sums, and their layout in shared memory."""

from __future__ import annotations

from abc import ABC, abstractmethod

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene
from stablexla.targets.codegen.sums.blocked_reduction import BLOCK, blocked_reduction
from stablexla.targets.gpu.contraction.register_tile import add_accumulators
from stablexla.targets.gpu.threads import WARP, shuffle_xor, thread_index

Range = tuple[Index, Index]
UNROLLED = 4


@dataclass(frozen=True)
class SkinnyWork(ABC):
    """Work distribution within a block.

    Attributes:
        rows: of the product.
        lanes: vector width of the larger factor's loads.
        warps: of the block.
    """

    rows: int
    lanes: int
    warps: int

    @property
    @abstractmethod
    def columns(self) -> int:
        """Columns of a block."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Terms that a block takes in an iteration."""

    @property
    def copies(self) -> int:
        """Sets of partial sums that are left, to be reduced."""
        return 1

    @property
    def sums(self) -> int:
        """Partial sums that are left in shared memory."""
        return self.copies * self.rows * self.columns

    @abstractmethod
    def run(self, scene: ContractionScene, frame: BatchFrame, first: Value, terms: Range, buffer: Value) -> None:
        """Store the partial sums over `terms` of columns `first`, ... into `buffer`: copies, rows, columns."""


@dataclass(frozen=True)
class SkinnyAlongK(SkinnyWork):
    """Larger factor contiguous along k: `width` threads interleave a column's terms, of `each` columns together."""

    width: int
    each: int

    @property
    def columns(self) -> int:
        return self.warps * (WARP // self.width) * self.each

    @property
    def step(self) -> int:
        return self.width * self.lanes

    def run(self, scene: ContractionScene, frame: BatchFrame, first: Value, terms: Range, buffer: Value) -> None:
        c, place = scene.contraction, thread_index() // self.width * self.each
        last = cg.index(c.n.extent - 1)
        starts = [cg.minimum(first + place + j, last) * c.n.b + frame.b for j in range(self.each)]
        zeros = [cg.constant(0, scene.compute)] * (self.rows * self.each)
        low = thread_index() % self.width * self.lanes + terms[0]

        def body(k: Value, sums: list[Value], _: list[Value]) -> tuple[list[Value], list[Value]]:
            b = [self._lanes_of(scene.load_b(at + k, self._wide)) for at in starts]
            made = list[Value]()
            for i in range(self.rows):
                a = self._row(scene, frame, i, k)
                for column in b:
                    total = sums[len(made)]
                    for x, y in zip(a, column, strict=True):
                        total = cg.fma(x, y, total)
                    made.append(total)
            return made, []

        trip_count, block = -(-c.k.extent // self.step), max(1, BLOCK() // self.lanes)
        sums, _ = blocked_reduction(low, terms[1], self.step, trip_count, zeros, add_accumulators, body, block=block)
        offset = self.width // 2
        while offset:
            sums = [v + shuffle_xor(v, offset) for v in sums]
            offset //= 2
        with cg.when((thread_index() % self.width).eq(0)):
            for number, total in enumerate(sums):
                row, j = divmod(number, self.each)
                cg.store(total, buffer, place + (row * self.columns + j))

    @property
    def _wide(self) -> int:
        return 0 if self.lanes == 1 else self.lanes

    def _row(self, scene: ContractionScene, frame: BatchFrame, number: int, k: Value) -> list[Value]:
        c = scene.contraction
        at = k * c.k.a + (cg.index(frame.a) + number * c.m.a)
        if c.k.a == 1:
            return self._lanes_of(scene.load_a(at, self._wide))
        return [scene.load_a(at + lane * c.k.a) for lane in range(self.lanes)]

    def _lanes_of(self, value: Value) -> list[Value]:
        return [cg.extract(value, lane) for lane in range(value.lanes)] if value.lanes else [value]


@dataclass(frozen=True)
class SkinnyAlongN(SkinnyWork):
    """Larger factor contiguous along n, or along nothing: a thread has `lanes` columns, and warps interleave terms."""

    @property
    def columns(self) -> int:
        return WARP * self.lanes

    @property
    def step(self) -> int:
        return self.warps * UNROLLED

    @property
    def copies(self) -> int:
        return self.warps

    def run(self, scene: ContractionScene, frame: BatchFrame, first: Value, terms: Range, buffer: Value) -> None:
        c, lanes = scene.contraction, 0 if self.lanes == 1 else self.lanes
        place, warp = thread_index() % WARP * self.lanes, thread_index() // WARP
        start = cg.minimum(first + place, cg.index(c.n.extent - self.lanes)) * c.n.b + frame.b
        sums = [cg.constant(0, cg.vector_of(lanes, scene.compute))] * self.rows

        def add(k: Value, sums: list[Value]) -> list[Value]:
            b = scene.load_b(start + k * c.k.b, lanes)
            found = [scene.load_a(k * c.k.a + (cg.index(frame.a) + i * c.m.a)) for i in range(self.rows)]
            return [cg.fma(cg.splat(a, lanes), b, total) for a, total in zip(found, sums, strict=True)]

        whole = cg.index(terms[0]) + (cg.index(terms[1]) - terms[0]) // self.step * self.step

        def several(k: Value, made: list[Value], _: list[Value]) -> tuple[list[Value], list[Value]]:
            for i in range(UNROLLED):
                made = add(k + i * self.warps, made)
            return made, []

        first, trip_count = cg.index(terms[0]) + warp, c.k.extent // self.step
        sums, _ = blocked_reduction(
            first, whole, self.step, trip_count, sums, add_accumulators, several, block=max(1, BLOCK() // UNROLLED)
        )
        with cg.loop(whole + warp, terms[1], self.warps, sums) as iteration:
            iteration.yields(*add(iteration.iv, iteration.args))
        for row, total in enumerate(iteration.results):
            cg.store(total, buffer, (warp * self.rows + row) * self.columns + place)
