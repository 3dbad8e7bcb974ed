"""Fourier transforms vectorized across lines, one line per lane: short contiguous lines, and strided dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.fft.plan import Axis, Bluestein, Direct, RealLine
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.complex_parts import Complex
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.sizes import element_bytes
from stablexla.targets.cpu.fft import sweeps as fft_sweeps
from stablexla.targets.cpu.fft.columns import FftColumns
from stablexla.targets.cpu.fft.numbers import CellArray, ComplexArray, vector_of_numbers
from stablexla.targets.cpu.fft.work import FftFunction, FftPhase, FftProgram

# Makes an array of a scene that starts at an offset, counted in elements of the array.
ArrayAt = Callable[[FftFunction, Value], ComplexArray]


@dataclass(frozen=True)
class FftRows:
    """Short contiguous lines of an array, of `length` elements each."""

    at: ArrayAt
    length: int


# ---- short lines, one per lane --------------------------------------------------------------------------------------


def add_short_lines(
    program: FftProgram, plan: Direct | RealLine, kind: str, count: int, source: FftRows, target: FftRows
) -> None:
    """Add the transform of `count` short lines to the program, one line per lane."""
    lanes = program.lanes
    inner = plan.inner if isinstance(plan, RealLine) else plan
    assert isinstance(inner, Direct)
    cells = 2 * lanes * (max(source.length, target.length, inner.n) + 1)
    passes = 2 * lanes * inner.n
    blocks = -(-count // lanes)

    def write(scene: FftFunction, memory: list[Value], block: Value) -> None:
        rows = [cg.minimum(block * lanes + lane, count - 1) for lane in range(lanes)]
        a, b, p, q = (CellArray(m, cg.index(0), lanes) for m in memory)
        _gather([source.at(scene, row * source.length) for row in rows], source.length, a)
        each = fft_sweeps.across(scene.tables, scene.part, lanes)
        one = fft_sweeps.SweepAccess(scene.tables, scene.part, lanes)
        if kind == "IRFFT":
            assert isinstance(plan, RealLine)
            (fft_sweeps.expand_half_spectrum if plan.fine is None else fft_sweeps.half_spectrum_to_pairs)(
                each, plan, a, b, one
            )
            a, b = b, a
        columns = FftColumns(inner, lanes, 1, (p, q), scene.tables, scene.part, scene.sign)
        columns.run(lambda row, _: a.load(row), lambda row, _, value: b.store(value, row))
        if isinstance(plan, RealLine) and kind == "RFFT" and plan.fine is not None:
            fft_sweeps.pairs_to_half_spectrum(each, plan, b, a, one)
            a, b = b, a
        _scatter(b, [target.at(scene, row * target.length) for row in rows], target.length)

    time = lanes * inner.n * (4 + log2(inner.n)) * element_bytes(program.part) / program.target.vector_bits * 4
    program.phases.append(FftPhase(blocks, (cells, cells, passes, passes), write, time))


def _gather(rows: Sequence[ComplexArray], length: int, cells: CellArray) -> None:
    """Load one line into each lane, by in-register transposes."""
    lanes = len(rows)
    whole = length // lanes * lanes
    with cg.loop(0, whole, lanes) as iteration:
        loaded = [row.load(iteration.iv, lanes) for row in rows]
        res, ims = (cg.transpose_registers(v) for v in ([z.re for z in loaded], [z.im for z in loaded]))
        for i, (re, im) in enumerate(zip(res, ims, strict=True)):
            cells.store(Complex(re, im), iteration.iv + i)
    with cg.loop(whole, length) as iteration:
        cells.store(vector_of_numbers([row.load(iteration.iv, 0) for row in rows]), iteration.iv)


def _scatter(cells: CellArray, rows: Sequence[ComplexArray], length: int) -> None:
    """Store the line of each lane: the inverse of `_gather`."""
    lanes = len(rows)
    whole = length // lanes * lanes
    with cg.loop(0, whole, lanes) as iteration:
        loaded = [cells.load(iteration.iv + i) for i in range(lanes)]
        res, ims = (cg.transpose_registers(v) for v in ([z.re for z in loaded], [z.im for z in loaded]))
        for row, re, im in zip(rows, res, ims, strict=True):
            row.store(Complex(re, im), iteration.iv)
    with cg.loop(whole, length) as iteration:
        value = cells.load(iteration.iv)
        for lane, row in enumerate(rows):
            row.store(Complex(cg.extract(value.re, lane), cg.extract(value.im, lane)), iteration.iv)


# ---- strided dimensions ----------------------------------------------------------------------------------------------


def add_columns(program: FftProgram, axis: Axis, source: ArrayAt, target: ArrayAt) -> None:
    """Add the transform along a strided (not the last) dimension to the program; source and target may alias."""
    _Dimension(program, axis, source, target).add()


@dataclass(frozen=True)
class _Dimension:
    """A transform along a strided dimension: tiles of columns, one line per lane."""

    program: FftProgram
    axis: Axis
    source: ArrayAt
    target: ArrayAt

    @property
    def vectors(self) -> int:
        """Vectors in a tile; a transform too long for the caches has one."""
        return 1 if isinstance(self.axis.plan, Bluestein) or self.axis.inner < 2 * self.program.lanes else 2

    def add(self) -> None:
        plan, lanes = self.axis.plan, self.program.lanes
        assert isinstance(plan, Direct | Bluestein)
        inner = plan if isinstance(plan, Direct) else plan.inner
        tile = 2 * lanes * self.vectors * inner.n
        memory = (tile,) * (2 if isinstance(plan, Direct) else 4)
        step = self.vectors * lanes
        blocks = -(-self.axis.inner // step)
        length = step * inner.n * (4 + log2(inner.n))
        time = length * element_bytes(self.program.part) / self.program.target.vector_bits * 2

        def write(scene: FftFunction, memory: list[Value], unit: Value) -> None:
            outer, block = unit // blocks, unit % blocks
            first = outer * (plan.n * self.axis.inner)
            if self.axis.inner % step == 0:
                self._whole_tile(scene, memory, first, block * step)
            elif self.axis.inner < step:
                self._rest(scene, memory, first)
            else:
                sides = cg.branch(block.lt(blocks - 1))
                with sides.then:
                    self._whole_tile(scene, memory, first, block * step)
                with sides.otherwise:
                    self._rest(scene, memory, first)

        self.program.phases.append(FftPhase(self.axis.outer * blocks, memory, write, time))

    def _whole_tile(self, scene: FftFunction, memory: list[Value], first: Value, column: Value) -> None:
        lanes, inner = self.program.lanes, self.axis.inner
        given, made = (array(scene, first + column) for array in (self.source, self.target))
        self._transform(
            scene,
            memory,
            self.vectors,
            lambda row, v: given.load(row * inner + v * lanes, lanes),
            lambda row, v, value: made.store(value, row * inner + v * lanes),
        )

    def _rest(self, scene: FftFunction, memory: list[Value], first: Value) -> None:
        """Transform the remainder columns after the last whole tile; the surplus lanes repeat the last column."""
        lanes, inner = self.program.lanes, self.axis.inner
        start = inner // (self.vectors * lanes) * (self.vectors * lanes)
        given, made = (array(scene, first) for array in (self.source, self.target))

        def columns(v: int) -> list[int]:
            return [min(start + v * lanes + lane, inner - 1) for lane in range(lanes)]

        def read(row: Value, v: int) -> Complex:
            places = columns(v)
            values = {place: given.load(row * inner + place, 0) for place in dict.fromkeys(places)}
            return vector_of_numbers([values[place] for place in places])

        def store(row: Value, v: int, value: Complex) -> None:
            for place, lane in {place: lane for lane, place in enumerate(columns(v))}.items():
                made.store(Complex(cg.extract(value.re, lane), cg.extract(value.im, lane)), row * inner + place)

        self._transform(scene, memory, -(-(inner - start) // lanes), read, store)

    def _transform(
        self,
        scene: FftFunction,
        memory: list[Value],
        vectors: int,
        read: Callable[[Value, int], Complex],
        store: Callable[[Value, int, Complex], None],
    ) -> None:
        plan, lanes = self.axis.plan, self.program.lanes
        a, b, *rest = (CellArray(m, cg.index(0), lanes) for m in memory)
        if isinstance(plan, Direct):
            FftColumns(plan, lanes, vectors, (a, b), scene.tables, scene.part, scene.sign).run(read, store)
            return
        assert isinstance(plan, Bluestein)
        assert isinstance(plan.inner, Direct)
        c, d = rest
        columns = FftColumns(plan.inner, lanes, 1, (a, b), scene.tables, scene.part, scene.sign)
        each = fft_sweeps.across(scene.tables, scene.part, lanes)
        fft_sweeps.chirp(each, plan, _Rows(read, store), c)
        columns.run(lambda row, _: c.load(row), lambda row, _, value: d.store(value, row))
        fft_sweeps.convolve(each, plan, d, c)
        columns.run(lambda row, _: c.load(row), lambda row, _, value: d.store(value, row))
        fft_sweeps.unchirp(each, plan, d, _Rows(read, store))


@dataclass(frozen=True)
class _Rows:
    """The rows of a tile of one vector as an array."""

    read: Callable[[Value, int], Complex]
    write: Callable[[Value, int, Complex], None]

    def load(self, at: Value | int, lanes: int) -> Complex:
        return self.read(cg.index(at), 0)

    def store(self, value: Complex, at: Value | int) -> None:
        self.write(cg.index(at), 0, value)
