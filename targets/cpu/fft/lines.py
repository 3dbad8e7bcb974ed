"""Fourier transforms along contiguous lines, each decomposed into stages of independent work items.

Many lines are done one after another, each with its stages in the memory of a thread; of few long lines each stage is a
phase, so that threads share its work items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from math import log2

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import Bluestein, Direct, Line, Rader, RealLine, Split
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.sizes import element_bytes
from stablexla.targets.cpu.fft import sweeps as fft_sweeps
from stablexla.targets.cpu.fft.columns import FftColumns
from stablexla.targets.cpu.fft.numbers import CellArray, ComplexArray, ConjugateProduct, InterleavedArray, PlanarArray
from stablexla.targets.cpu.fft.work import FftFunction, FftPhase, FftProgram

# Elements in a work item of a sweep.
SWEEP = Gate("fft.sweep", 8192, eager=16)
# Threshold of parallelization: nanoseconds of a line that are worth sharing among threads.
WORTH_SHARING = Gate("fft.worth-sharing", 40_000, eager=1)


@dataclass(frozen=True)
class FftStageContext:
    """Context of a stage: the function being emitted, the line, and the line's buffers kept between stages."""

    scene: FftFunction
    row: Value
    spaces: list[PlanarArray]


Where = Callable[[FftStageContext], ComplexArray]


@dataclass(frozen=True)
class FftStage:
    """One step of a line's transform: independent work items, each with some memory of its own."""

    count: int
    memory: tuple[int, ...]
    write: Callable[[FftStageContext, list[Value], Value], None]


@dataclass
class FftLines:
    """The stages of a transform of `rows` lines, from their source to their target."""

    program: FftProgram
    rows: int
    source: Where
    target: Where
    spaces: list[int] = field(default_factory=list)

    def space(self, size: int) -> Where:
        """Reserve a buffer of `size` numbers per line that is kept between stages."""
        number = len(self.spaces)
        self.spaces.append(size)
        return lambda place: place.spaces[number]

    # ---- stages ------------------------------------------------------------------------------------------------------

    def complex_line(self, plan: Line, source: Where, target: Where) -> list[FftStage]:
        """Return the stages of a complex-to-complex transform: Split (four-step), Rader or Bluestein."""
        if isinstance(plan, Split):
            return self._split(plan, source, target, self.space(plan.n))
        if isinstance(plan, Rader):
            return self._prime(plan, source, target)
        assert isinstance(plan, Bluestein)
        inner = plan.inner
        assert isinstance(inner, Split)
        a, turned = self.space(inner.n), self.space(inner.n)

        def product(place: FftStageContext) -> ComplexArray:
            return ConjugateProduct(a(place), place.scene.tables[plan.spectrum])

        return [
            self._sweep(inner.n, lambda each, s, t, _: fft_sweeps.chirp(each, plan, s, t), source, a),
            *self._split(inner, a, product, turned),
            *self._split(inner, a, a, turned),
            self._sweep(plan.n, lambda each, s, t, _: fft_sweeps.unchirp(each, plan, s, t), a, target),
        ]

    def _prime(self, plan: Rader, source: Where, target: Where) -> list[FftStage]:
        """Return Rader's stages: convolve all numbers but the first, which is reloaded before the target is written."""
        inner = plan.inner
        a, turned = self.space(inner.n), self.space(inner.n)

        def product(place: FftStageContext) -> ComplexArray:
            return ConjugateProduct(a(place), place.scene.tables[plan.spectrum])

        def first(place: FftStageContext, _: list[Value], __: Value) -> None:
            one = fft_sweeps.AlongLine(place.scene.tables, place.scene.part, 0)
            fft_sweeps.add_first(plan, source(place), a(place), target(place), one)

        return [
            self._sweep(inner.n, lambda each, s, t, _: fft_sweeps.rader_permute(each, plan, s, t), source, a),
            *self._split(inner, a, product, turned),
            FftStage(1, (), first),
            *self._split(inner, a, a, turned),
            self._sweep(inner.n, lambda each, s, t, _: fft_sweeps.rader_unpermute(each, plan, s, t), a, target),
        ]

    def from_real(self, plan: RealLine, source: Where, target: Where) -> list[FftStage]:
        """Return the stages of a real-input transform to a half spectrum; an even length is packed as complex pairs."""
        kept = plan.n // 2 + 1
        if plan.fine is None:
            z = self.space(plan.n)
            copy = self._sweep(kept, lambda each, s, t, _: fft_sweeps.copy(each, kept, s, t), z, target)
            return [*self.complex_line(plan.inner, source, z), copy]
        z = self.space(kept)
        join = self._sweep(
            kept, lambda each, s, t, one: fft_sweeps.pairs_to_half_spectrum(each, plan, s, t, one), z, target
        )
        return [*self.complex_line(plan.inner, source, z), join]

    def to_real(self, plan: RealLine, source: Where, target: Where) -> list[FftStage]:
        """Return the stages of the inverse transform from a half spectrum to real numbers."""
        z = self.space(plan.n if plan.fine is None else plan.n // 2)
        sweep = fft_sweeps.expand_half_spectrum if plan.fine is None else fft_sweeps.half_spectrum_to_pairs
        first = self._sweep(plan.n, lambda each, s, t, one: sweep(each, plan, s, t, one), source, z)
        return [first, *self.complex_line(plan.inner, z, target)]

    def _sweep(
        self,
        length: int,
        write: Callable[[fft_sweeps.Each, ComplexArray, ComplexArray, fft_sweeps.SweepAccess], None],
        source: Where,
        target: Where,
    ) -> FftStage:
        def piece(place: FftStageContext, _: list[Value], number: Value) -> None:
            scene = place.scene
            whole = fft_sweeps.along(scene.tables, scene.part, scene.lanes)
            one = fft_sweeps.AlongLine(scene.tables, scene.part, 0)
            write(fft_sweeps.within(whole, number * SWEEP(), SWEEP()), source(place), target(place), one)

        return FftStage(-(-length // SWEEP()), (), piece)

    def _split(self, plan: Split, source: Where, target: Where, turned: Where) -> list[FftStage]:
        """Return both stages of a four-step split; the source is read before anything is written to the target."""
        lanes = self.program.lanes
        while lanes > min(plan.columns.n, plan.rows.n):
            lanes //= 2
        first = _Tiles(self.program, plan.columns.n, plan.rows.n, lanes)
        second = _Tiles(self.program, plan.rows.n, plan.columns.n, lanes)

        def columns(place: FftStageContext, memory: list[Value], tile: Value) -> None:
            start, given = first.start(tile), source(place)
            # The last pass stores to the ping-pong buffer that it does not load from.
            work = CellArray(memory[(len(plan.columns.passes) - 1) % 2], cg.index(0), lanes)
            first.columns(plan.columns, place.scene, memory).run(
                lambda row, v: given.load(row * plan.rows.n + start + v * lanes, lanes),
                lambda row, v, value: work.store(value, row * first.vectors + v),
            )
            _transpose(plan, place, first, work, turned(place), start)

        def rows(place: FftStageContext, memory: list[Value], tile: Value) -> None:
            start, given, made = second.start(tile), turned(place), target(place)
            second.columns(plan.rows, place.scene, memory).run(
                lambda row, v: given.load(row * plan.columns.n + start + v * lanes, lanes),
                lambda row, v, value: made.store(value, row * plan.columns.n + start + v * lanes),
            )

        return [FftStage(first.count, first.memory, columns), FftStage(second.count, second.memory, rows)]

    # ---- phases ------------------------------------------------------------------------------------------------------

    def add(self, stages: list[FftStage], length: int) -> None:
        """Add the stages of lines of `length` numbers to the program, as phases or nested in one."""
        line = length * log2(length + 1) * element_bytes(self.program.part) / self.program.target.vector_bits * 2
        if self.rows < 2 * self.program.target.num_threads and line > WORTH_SHARING():
            self._add_phases(stages, line)
        else:
            self._add_nested(stages, line, length)

    def _add_phases(self, stages: list[FftStage], nanoseconds: float) -> None:
        buffers = [self.program.buffer(2 * size * self.rows) for size in self.spaces]
        for stage in stages:

            def write(scene: FftFunction, memory: list[Value], unit: Value, stage: FftStage = stage) -> None:
                row, piece = unit // stage.count, unit % stage.count
                pairs = zip(buffers, self.spaces, strict=True)
                spaces = [PlanarArray(scene.scratch[b], row * (2 * size), size) for b, size in pairs]
                stage.write(FftStageContext(scene, row, spaces), memory, piece)

            share = nanoseconds / len(stages) / stage.count
            self.program.phases.append(FftPhase(self.rows * stage.count, stage.memory, write, share))

    def _add_nested(self, stages: list[FftStage], nanoseconds: float, length: int) -> None:
        busiest = max(range(len(stages)), key=lambda number: stages[number].count)
        kept = tuple(2 * size for size in self.spaces)
        longest = max(len(stage.memory) for stage in stages)
        most = tuple(max((s.memory[i] for s in stages if i < len(s.memory)), default=0) for i in range(longest))

        def write(scene: FftFunction, memory: list[Value], row: Value) -> None:
            spaces = [PlanarArray(m, cg.index(0), size) for m, size in zip(memory, self.spaces, strict=False)]
            place, ahead = FftStageContext(scene, row, spaces), FftStageContext(scene, row + 1, spaces)
            for number, stage in enumerate(stages):
                with cg.loop(0, stage.count) as iteration:
                    if number == busiest:
                        _fetch(self.source(ahead), self.target(ahead), iteration.iv, -(-length // stage.count))
                    stage.write(place, memory[len(kept) :], iteration.iv)

        self.program.phases.append(FftPhase(self.rows, (*kept, *most), write, nanoseconds))


def _fetch(source: ComplexArray, target: ComplexArray, iteration: Value, numbers: int) -> None:
    """Prefetch one iteration's share of the next line, whose access order no hardware prefetcher predicts.

    Without it 1000 lines of 1000 take 2.06 ms and of 1024 2.37, and with it 1.36 and 1.55.
    """
    for array in (source, target):
        if isinstance(array, InterleavedArray):
            parts = 2 * numbers
            step = 64 // element_bytes(array.parts.element)
            for place in range(0, parts, step):
                cg.prefetch(array.parts, array.base * 2 + iteration * parts + place, write=array is target)


@dataclass(frozen=True)
class _Tiles:
    """Column tiles, a few vectors wide, of an array [n, width]; the last tile may overlap the one before it."""

    program: FftProgram
    n: int
    width: int
    lanes: int

    @property
    def vectors(self) -> int:
        return 2 if self.width >= 2 * self.lanes and -(-self.width // self.lanes) % 2 == 0 else 1

    @property
    def count(self) -> int:
        return -(-self.width // (self.vectors * self.lanes))

    @property
    def memory(self) -> tuple[int, int]:
        """The sizes of the two ping-pong buffers of a tile."""
        size = self.n * self.vectors * 2 * self.lanes
        return size, size

    def start(self, tile: Value) -> Value:
        step = self.vectors * self.lanes
        return tile * step if self.width % step == 0 else cg.minimum(tile * step, self.width - step)

    def columns(self, plan: Direct, scene: FftFunction, memory: list[Value]) -> FftColumns:
        a, b = (CellArray(m, cg.index(0), self.lanes) for m in memory)
        return FftColumns(plan, self.lanes, self.vectors, (a, b), scene.tables, scene.part, scene.sign)


def _transpose(
    plan: Split, place: FftStageContext, tiles: _Tiles, work: CellArray, target: ComplexArray, start: Value
) -> None:
    """Multiply a tile by its twiddle factors and store it transposed."""
    lanes, n = tiles.lanes, plan.columns.n
    with cg.loop(0, -(-n // lanes)) as iteration:
        first = iteration.iv * lanes if n % lanes == 0 else cg.minimum(iteration.iv * lanes, n - lanes)
        for v in range(tiles.vectors):
            column = start + v * lanes
            values = []
            for i in range(lanes):
                row = first + i
                values.append(work.load(row * tiles.vectors + v) * _factor(plan, place.scene, row, column, lanes))
            res = cg.transpose_registers([z.re for z in values])
            ims = cg.transpose_registers([z.im for z in values])
            for i, (re, im) in enumerate(zip(res, ims, strict=True)):
                target.store(Complex(re, im), (column + i) * n + first)


def _factor(plan: Split, scene: FftFunction, row: Value, column: Value, lanes: int) -> Complex:
    width = plan.fine.columns
    if plan.coarse is None:
        return scene.tables[plan.fine].load(row * width + column, lanes)
    fine = scene.tables[plan.fine].load(row % plan.fine.rows * width + column, lanes)
    return fine * scene.tables[plan.coarse].load(row // plan.fine.rows * width + column, lanes)
