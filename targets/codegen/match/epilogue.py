"""Output of contractions: addresses of operands and results, the epilogue, and stores of whole or remainder tiles.

The accumulation is left to the families `cpu/contraction` and `gpu/contraction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody, outside_constant
from stablexla.targets.codegen.conversion import convert, load_converted
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis, ContractionOperand, EpilogueInput


@dataclass(frozen=True)
class BatchFrame:
    """One product of the batch: offsets of its lhs, rhs and result, and its batch indices."""

    a: Index
    b: Index
    c: Index
    coordinates: tuple[Index, ...]


@dataclass(frozen=True)
class ResultRow:
    """A row of a product's result: its offset, and those of the rows that the epilogue loads."""

    frame: BatchFrame
    number: Index
    c: Index
    inputs: dict[EpilogueInput, Index]


@dataclass(frozen=True)
class SumState:
    """State of accumulated sums at the output: whether this is the first block of k, and whether the last.

    None stands for a sum over all of k at once. Kept sums are partial ones of split-K: they are not written to the
    results but left for a later phase, `offset` elements into the buffer of partial sums.
    """

    first: Value | None = None
    last: Value | None = None
    kept: bool = False
    offset: Index = 0


COMPLETE_SUM = SumState()
# A row, a column in it, and the number of valid lanes from there.
ResultSpan = tuple[ResultRow, Index, Index]


def accumulator_type(contraction: Contraction, least_bits: int = 32) -> ir.Type:
    """Return the accumulator type: integers are summed in `least_bits` or more, which changes no low bit."""
    sum_type = contraction.sum_type
    narrow = isinstance(sum_type, ir.IntegerType) and cg.bits_of(sum_type) < least_bits
    return ir.IntegerType.get_signless(least_bits) if narrow else sum_type


class ContractionScene:
    """A contraction inside the function being emitted: buffers, addresses, conversions and output.

    Args:
        partial: the buffer of partial sums, if results do not hold them.
        compute: the accumulator type, if not that of `accumulator_type`.
    """

    def __init__(
        self,
        contraction: Contraction,
        arguments: KernelArguments,
        partial: Value | None = None,
        compute: ir.Type | None = None,
    ) -> None:
        self.contraction = contraction
        self._arguments = arguments
        self.inputs = arguments.inputs
        self.results = arguments.results
        self.compute = compute or accumulator_type(contraction)
        self.lanes = cg.lanes_of(self.compute)
        self.zero = cg.constant(0, cg.vector_of(self.lanes, self.compute))
        self._by_value: dict[ir.Value, Value] = dict(zip(contraction.kernel.inputs, self.inputs, strict=True))
        self._partial = partial
        self.vectors = stores_vectors(contraction)

    @property
    def partial(self) -> Value | None:
        """The buffer of partial sums, if results do not hold them."""
        return self._partial

    def swapped(self) -> ContractionScene:
        """Return the scene of the transposed product."""
        return ContractionScene(self.contraction.swapped(), self._arguments, self._partial, self.compute)

    # Operands.

    def frame(self, batch: Index) -> BatchFrame:
        """Emit the offsets of product number `batch`."""
        axes = self.contraction.batch
        coordinates: list[Index] = list(cg.split_index(batch, [axis.extent for axis in axes]))
        a, b, c = (
            cg.total(x * getattr(axis, side) for x, axis in zip(coordinates, axes, strict=True))
            for side in ("a", "b", "c")
        )
        return BatchFrame(a, b, c, tuple(coordinates))

    def load_a(self, at: Index, lanes: int = 0, count: Index | None = None) -> Value:
        """Load elements of lhs as accumulator type; `count` of `lanes` are loaded, the others are 0."""
        return self._load(self.contraction.a, at, lanes, count)

    def load_b(self, at: Index, lanes: int = 0, count: Index | None = None) -> Value:
        """Load elements of rhs as accumulator type; `count` of `lanes` are loaded, the others are 0."""
        return self._load(self.contraction.b, at, lanes, count)

    def convert_b(self, value: Value) -> Value:
        """Convert elements of rhs to accumulator type."""
        return convert(value, self.contraction.b.conversion, self.compute)

    def _load(self, operand: ContractionOperand, at: Index, lanes: int, count: Index | None) -> Value:
        return load_converted(self.inputs[operand.number], operand.conversion, self.compute, at, lanes, count)

    # Results.

    def row(self, frame: BatchFrame, number: Index) -> ResultRow:
        """Emit the offsets of row `number` of a product."""
        c = self.contraction
        inputs: dict[EpilogueInput, Index] = {}
        for i in c.arrays:
            along_batch = (_address(axis, i, x) for axis, x in zip(c.batch, frame.coordinates, strict=True))
            inputs[i] = cg.total(along_batch) + _address(c.m, i, number)
        return ResultRow(frame, number, cg.index(number) * c.m.c + frame.c, inputs)

    def write(self, value: Value, row: ResultRow, column: Index, count: Index) -> None:
        """Apply the epilogue to sums of row `row` from column `column` on and store `count` lanes to the results."""
        lanes = value.lanes
        if value.element != self.contraction.sum_type:
            value = Value(arith.trunci(cg.vector_of(lanes, self.contraction.sum_type), value.ssa))
        made = {self.contraction.dot: value}
        for op in self.contraction.epilogue:
            given = [self._epilogue_value(i, made, row, column, lanes, count) for i in op.inputs]
            out = VectorBody(op.body, lanes, lambda d: self._coordinate(d, row, column, lanes)).on(given)
            made.update(zip(op.operation.results, out, strict=True))
        at = row.c + cg.index(column) * self.contraction.n.c
        for buffer, result in zip(self.results, self.contraction.kernel.results, strict=True):
            cg.store_lanes(made[result], buffer, at, count)

    def _epilogue_value(
        self, i: EpilogueInput, made: dict[ir.Value, Value], row: ResultRow, column: Index, lanes: int, count: Index
    ) -> Value:
        if i.kind == "value":
            return made[i.value]
        if i.kind == "scalar":
            return self._scalar(i.value)
        at = cg.index(row.inputs[i]) + _address(self.contraction.n, i, column)
        if lanes and stride_along(self.contraction.n, i) == 1:
            return cg.load_lanes(self._by_value[i.value], at, lanes, count)
        return cg.load(self._by_value[i.value], at)

    def _scalar(self, value: ir.Value) -> Value:
        if value in self._by_value:
            return self._by_value[value]
        return outside_constant(value)

    def _coordinate(self, dimension: int, row: ResultRow, column: Index, lanes: int) -> Value:
        """Emit the value of `linalg.index dimension` for the lanes of a store."""
        c = self.contraction
        axes = [*zip(c.batch, row.frame.coordinates, strict=True), (c.m, row.number), (c.n, column)]
        for axis, position in axes:
            places = [d for d, _ in axis.dims]
            if dimension not in places:
                continue
            if axis is c.n and lanes:
                return cg.splat(cg.index(position), lanes) + cg.iota_vector(lanes)
            return cg.split_index(position, [extent for _, extent in axis.dims])[places.index(dimension)]
        return cg.index(0)

    # Tiles.

    def add_partial(self, value: Value, row: ResultRow, column: Index, count: Index, sums: SumState) -> Value:
        """Add the partial sums of earlier blocks of k, if any."""
        if sums.first is None:
            return value
        choice = cg.branch(sums.first, [value.type])
        with choice.then:
            choice.yields(value)
        with choice.otherwise:
            choice.yields(value + self.load_partial(row, column, value.lanes, count, sums.offset))
        return choice.results[0]

    def load_partial(self, row: ResultRow, column: Index, lanes: int, count: Index, offset: Index = 0) -> Value:
        """Load the partial sums of earlier blocks of k."""
        at = row.c + cg.index(column) * self.contraction.n.c + offset
        buffer = self.sums_buffer()
        return cg.load_lanes(buffer, at, lanes, count)

    def store_partial(self, value: Value, row: ResultRow, column: Index, count: Index, offset: Index = 0) -> None:
        """Store partial sums for later blocks of k."""
        cg.store_lanes(value, self.sums_buffer(), row.c + cg.index(column) * self.contraction.n.c + offset, count)

    def sums_buffer(self) -> Value:
        """Return the buffer of partial sums."""
        if self._partial is not None:
            return self._partial
        return self.results[partial_sum_result(self.contraction)]

    def write_block(
        self,
        buffer: Value,
        width: Index,
        frame: BatchFrame,
        size: tuple[Index, Index],
        at: tuple[Index, Index],
        sums: SumState = COMPLETE_SUM,
        base: Index = 0,
        ends: tuple[int, int] | None = None,
    ) -> None:
        """Store `size` (rows, columns) of sums from `buffer`, of row width `width`, at `at` of the result.

        The sums begin at `base` of the buffer. Blocks that begin at multiples of the vector width may have a number of
        columns known only at run time: a multiple of the first of `ends`, with a remainder like that of the second.
        """
        lanes = self.lanes if self.vectors else 1
        columns = cg.index(size[1])
        number = cg.known(columns)
        multiple, end = ends or ((1, self.contraction.n.extent) if number is None else (number, number))
        if self.vectors and multiple % (2 * lanes) == 0 and self.is_deep:
            lanes *= 2
        rest = end % lanes
        whole = columns - columns % lanes
        with cg.loop(0, size[0]) as r:
            row = self.row(frame, r.iv + at[0])
            start = r.iv * width + base
            with cg.loop(0, whole, lanes) as j:
                value = cg.load(buffer, start + j.iv, lanes if self.vectors else 0)
                self._write_or_keep(value, row, j.iv + at[1], lanes, sums)
            if rest:
                with nullcontext() if number is not None else cg.when(whole.lt(columns)):
                    value = cg.load_lanes(buffer, start + whole, self.lanes, rest)
                    self._write_or_keep(value, row, whole + at[1], rest, sums)

    def write_rows(
        self,
        buffer: Value,
        vectors: int,
        frame: BatchFrame,
        size: tuple[Index, Index],
        at: tuple[Index, Index],
        sums: SumState = COMPLETE_SUM,
        base: Index = 0,
    ) -> None:
        """Store a tile of `vectors` vectors a row, as `write_block` does; it begins at a multiple of its width.

        `size` has either all of the tile's columns or the remainder at the edge, or a known number of them; the sums
        begin at `base` of the buffer. An iteration stores a whole row: that is little code, and for a tile of some
        hundred steps of k as fast as storing from registers.
        """
        lanes, width = self.lanes, vectors * self.lanes
        rest = self.contraction.n.extent % width

        def write(row: ResultRow, start: Value, columns: int) -> None:
            offsets = range(0, columns, lanes)
            places: list[ResultSpan] = [(row, cg.index(at[1]) + o, min(lanes, columns - o)) for o in offsets]
            values = [cg.load(buffer, start + o, lanes) for o in offsets]
            if sums.first is not None:
                before = [self.load_partial(row, c, lanes, count, sums.offset) for row, c, count in places]
                values = [cg.select(sums.first, v, v + b) for v, b in zip(values, before, strict=True)]
            self.write_all(values, places, sums)

        with cg.loop(0, size[0]) as r:
            row, start = self.row(frame, r.iv + at[0]), r.iv * width + base
            number = cg.known(size[1])
            if number is not None or not rest:
                write(row, start, width if number is None else number)
                return
            whole = cg.branch(cg.index(size[1]).ge(width))
            with whole.then:
                write(row, start, width)
            with whole.otherwise:
                write(row, start, rest)

    @property
    def is_deep(self) -> bool:
        """Whether results are 16-bit numbers after a long chain of operations and roundings.

        Two registers of them then go through the epilogue together, which hides its latency.
        """
        types = [result.type for result in self.contraction.kernel.results]
        types += [i.value.type for i in self.contraction.arrays]
        return self.contraction.epilogue_size >= 16 and all(cg.bits_of(t) == 16 for t in types)

    def _write_or_keep(self, value: Value, row: ResultRow, column: Value, count: Index, sums: SumState) -> None:
        value = self.add_partial(value, row, column, count, sums)
        self.write_all([value], [(row, column, count)], sums)

    @property
    def keeping_is_writing(self) -> bool:
        """Whether partial sums lie in the only result and need no epilogue."""
        return self._partial is None and stores_sums(self.contraction, self.compute)

    def write_all(self, values: Sequence[Value], places: Sequence[ResultSpan], sums: SumState) -> None:
        """Store sums to the results if they are complete, else as partial sums."""

        def keep() -> None:
            for value, (row, column, count) in zip(values, places, strict=True):
                self.store_partial(value, row, column, count, sums.offset)

        def write() -> None:
            for value, (row, column, count) in zip(values, places, strict=True):
                self.write(value, row, column, count)

        if sums.kept or sums.last is None or self.keeping_is_writing:
            (keep if sums.kept else write)()
            return
        end = cg.branch(sums.last)
        with end.then:
            write()
        with end.otherwise:
            keep()


def stores_vectors(contraction: Contraction) -> bool:
    """Whether n is unit-stride in the results, and unit-stride or broadcast in the epilogue's operands."""
    return contraction.n.c == 1 and all(stride_along(contraction.n, i) in (0, 1) for i in contraction.arrays)


def stores_sums(contraction: Contraction, compute: ir.Type) -> bool:
    """Return whether sums of type `compute` are the only result as they are."""
    c = contraction
    return not c.epilogue and len(c.kernel.results) == 1 and compute == c.sum_type


def partial_sum_result(contraction: Contraction) -> int:
    """Return the number of a result whose buffer can hold partial sums, or -1."""
    wanted = accumulator_type(contraction)
    types = [result.type.element_type for result in contraction.kernel.results]
    return types.index(wanted) if wanted in types else -1


def stride_along(axis: ContractionAxis, i: EpilogueInput) -> int | None:
    """Return the stride of an array along an axis; None if it varies."""
    stride = 0
    for place, (d, extent) in enumerate(axis.dims):
        if place and stride != i.strides[d] * extent:
            return None
        stride = i.strides[d]
    return stride


def _address(axis: ContractionAxis, i: EpilogueInput, position: Index) -> Value:
    stride = stride_along(axis, i)
    if stride is not None:
        return cg.index(position) * stride
    places = cg.split_index(position, [extent for _, extent in axis.dims])
    return cg.total(x * i.strides[d] for x, (d, _) in zip(places, axis.dims, strict=True))
