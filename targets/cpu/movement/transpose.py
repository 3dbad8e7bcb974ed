"""Emit transposes: kernels that only permute dimensions, perhaps through an elementwise body.

Dimensions that stay adjacent collapse into one. Then either whole contiguous lines are copied, or square tiles are
transposed in registers and collected in a buffer until a result's lines are complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody, can_clone, outside_constant
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import Refusal, refuse
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.grouping.loops import is_generic, loops_of, map_strides, reads_outputs

# A cache block: how many of the operand's lines, bytes of each, and bytes in all when it is thinner than that.
BLOCK_LINES = Gate("transpose.block-lines", 128, eager=2)
BLOCK_BYTES = Gate("transpose.block-bytes", 256, eager=1)
THIN_BYTES = Gate("transpose.thin-bytes", 16 << 10, eager=1)
# Lines up to this size that follow one another are moved whole, half as many of them, so that loads are one stream. 32
# times 3136 lines of 192 elements of 32 bits took 5.3 ms instead of 8.6, 8 times 3136 of 128 took 0.63 for 1.13.
WHOLE_BYTES = Gate("transpose.whole-bytes", 1 << 10, eager=1)
# Bytes moved by one work item, and the grain: bytes worth another thread (about 20 microseconds).
ITEM_BYTES = Gate("transpose.item-bytes", 32 << 10, eager=64)
GRAIN_BYTES = Gate("transpose.grain-bytes", 256 << 10, eager=1)
# Lines at multiples of so many bytes conflict in one set of L1: 32 KiB of 8 ways, as most have had for long.
WAY_BYTES = Gate("transpose.way-bytes", 4 << 10, eager=1)
# A result's lines begin at multiples of this many bytes when its buffer does.
LINE = 64


@dataclass(frozen=True)
class TransposeAxis:
    """A loop: its trip count, and its strides in the operand and in the result, in elements."""

    extent: int
    source: int
    target: int


@dataclass(frozen=True)
class Permutation:
    """A permutation: elements of input `number` go along `axes` (in the result's order) through `body`."""

    number: int
    axes: tuple[TransposeAxis, ...]
    operation: ir.Operation

    @property
    def body(self) -> ir.Block | None:
        """The elementwise body; None for a plain copy."""
        if self.operation.name == "linalg.transpose":
            return None
        block: ir.Block = self.operation.regions[0].blocks[0]
        return block if len(block.operations) > 1 else None


_OTHER = Refusal("emitters take one array whose dimensions are permuted", "the permutation alone")


@emitter("transpose")
def emit_transpose(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit permutations of dimensions of one array; return None for anything else."""
    with kernel.func.context, ir.Location.unknown():
        move = match_permutation(kernel)
        if move is None:
            refuse(_OTHER)
            return None
        if any(axis.extent == 0 for axis in move.axes):
            return _emit_nothing(kernel, target)
        if move.axes[-1].source == 1:
            return _emit_lines(kernel, move, target)
        return _emit_squares(kernel, move, target)


# --- matching ------------------------------------------------------------------------------------------------


def match_permutation(kernel: Kernel) -> Permutation | None:
    """Match `kernel` as a permutation, or return None."""
    ops = [op for op in kernel.ops if op.name not in ("arith.constant", "tensor.empty")]
    if len(ops) != 1 or list(ops[0].results) != kernel.results or len(kernel.results) != 1:
        return None
    op = ops[0]
    arrays = [v for v in list(op.operands)[:-1] if isinstance(v.type, ir.RankedTensorType)]
    if len(arrays) != 1 or arrays[0] not in kernel.inputs:
        return None
    strides = _source_strides(op, list(op.operands).index(arrays[0]), arrays[0].type.shape)
    if strides is None:
        return None
    shape = list(kernel.results[0].type.shape)
    return Permutation(kernel.inputs.index(arrays[0]), _merged(shape, strides), op)


def _source_strides(op: ir.Operation, position: int, shape: list[int]) -> Sequence[int] | None:
    """Return the operand's stride along each dimension of the result."""
    if op.name == "linalg.transpose":
        return [row_major(shape)[d] for d in ir.DenseI64ArrayAttr(op.attributes["permutation"])]
    if not is_generic(op) or not _is_elementwise(op):
        return None
    map_ = loops_of(op).maps[position]
    return map_strides(map_, shape) if map_.is_permutation else None


def _is_elementwise(op: ir.Operation) -> bool:
    """Return whether all loops are parallel, the result is in order and only written, and the body can be cloned."""
    loops = loops_of(op)
    in_order = len(op.results) == 1 and loops.in_order and not any(loops.reduced)
    return in_order and not reads_outputs(op) and can_clone(op.regions[0].blocks[0], lanes=False)


def _merged(shape: list[int], strides: Sequence[int]) -> tuple[TransposeAxis, ...]:
    """Return the loops of trip count above 1, collapsing those that are adjacent in both arrays."""
    axes: list[TransposeAxis] = []
    for extent, source, target in zip(shape, strides, row_major(shape), strict=True):
        if extent == 1:
            continue
        if axes and axes[-1].source == source * extent:
            axes[-1] = TransposeAxis(axes[-1].extent * extent, source, target)
        else:
            axes.append(TransposeAxis(extent, source, target))
    return tuple(axes) or (TransposeAxis(1, 1, 1),)


# --- code ----------------------------------------------------------------------------------------------------


class _Mover:
    """Loads, the body, and stores, inside the function being emitted."""

    def __init__(self, kernel: Kernel, move: Permutation, arguments: KernelArguments, nontemporal: bool) -> None:
        # Complex numbers without a body are copied as integers.
        buffers = (arguments.inputs[move.number], arguments.results[0])
        self.source, self.result = buffers if move.body else map(cg.as_words, buffers)
        self._move = move
        self._inputs = dict(zip(kernel.inputs, arguments.inputs, strict=True))
        self.nontemporal = nontemporal

    def compute(self, value: Value) -> Value:
        """Apply the body to a loaded value."""
        if self._move.body is None:
            return value
        operands = list(self._move.operation.operands)[:-1]
        given = [value if isinstance(v.type, ir.RankedTensorType) else self._scalar(v) for v in operands]
        return VectorBody(self._move.body, value.lanes).on(given)[0]

    def _scalar(self, value: ir.Value) -> Value:
        return self._inputs[value] if value in self._inputs else outside_constant(value)

    def put(self, value: Value, at: Index, count: int) -> None:
        """Store `count` lanes of a finished value in the result."""
        if self.nontemporal and count == value.lanes:
            cg.store(value, self.result, at, nontemporal=True)
        else:
            cg.store_lanes(value, self.result, at, count)


def _emit_nothing(kernel: Kernel, target: CpuTarget) -> Emitted:
    with kernel.phase(target):
        pass
    return Emitted(items=1, grain=1)


def _lanes(kernel: Kernel, move: Permutation, target: CpuTarget) -> int:
    """Return the vector width at which a square tile fits the registers; 0 for elements without vectors."""
    types = [kernel.inputs[move.number].type.element_type, kernel.results[0].type.element_type]
    scalar_body = move.body is not None and not can_clone(move.body)
    bits = max(cg.bits_of(t) for t in types)
    if scalar_body or bits > 64 or (move.body and any(isinstance(t, ir.ComplexType) for t in types)):
        return 0
    # Tiles of narrow elements take half a register: they need many rows.
    return {8: 16, 16: 8}.get(bits, max(1, target.vector_bits // bits))


def _goes_past_caches(kernel: Kernel, line: int, lanes: int, target: CpuTarget) -> bool:
    """Return whether non-temporal stores pay and are aligned: a large result, with lines of `line` elements."""
    type_ = kernel.results[0].type
    width = cg.bits_of(type_.element_type) // 8
    large = math.prod(type_.shape) * width >= target.nontemporal_bytes
    return large and line * width % LINE == 0 and lanes * width >= 16


def _emit_lines(kernel: Kernel, move: Permutation, target: CpuTarget) -> Emitted:
    """Emit copies of whole lines; a work item is a block of the innermost loop over lines."""
    lanes = _lanes(kernel, move, target)
    *outer, line = move.axes
    if not outer:  # the identity permutation: blocks of one long line
        return _emit_copy(kernel, move, lanes, target)
    *rest, last = outer
    width = cg.bits_of(kernel.results[0].type.element_type) // 8
    block = max(1, min(last.extent, ITEM_BYTES() // (line.extent * width)))
    blocks = math.ceil(last.extent / block)
    extents = [*(axis.extent for axis in rest), blocks]
    with kernel.phase(target) as arguments:
        mover = _Mover(kernel, move, arguments, _goes_past_caches(kernel, line.extent, lanes, target))
        with arguments.split_items(extents) as (*places, number):
            source, to = _start(rest, places)
            first = number * block
            with cg.loop(first, cg.minimum(first + block, last.extent)) as i:
                _copy_line(mover, i.iv * last.source + source, i.iv * last.target + to, line.extent, lanes)
    return Emitted(math.prod(extents), _grain(block * line.extent * width))


def _emit_copy(kernel: Kernel, move: Permutation, lanes: int, target: CpuTarget) -> Emitted:
    width = cg.bits_of(kernel.results[0].type.element_type) // 8
    size = move.axes[-1].extent
    block = min(size, ITEM_BYTES() // width)
    with kernel.phase(target) as arguments:
        mover = _Mover(kernel, move, arguments, False)
        with arguments.items(math.ceil(size / block)) as item:
            # The last block ends with the array and overlaps the one before.
            at = cg.minimum(item * block, size - block)
            _copy_line(mover, at, at, block, lanes)
    return Emitted(math.ceil(size / block), _grain(block * width))


def _start(axes: list[TransposeAxis], places: list[Value]) -> tuple[Value, Value]:
    """Return the offsets in the operand and in the result of one iteration of the outer loops."""
    source, target = cg.index(0), cg.index(0)
    for axis, place in zip(axes, places, strict=True):
        source, target = place * axis.source + source, place * axis.target + target
    return source, target


def _copy_line(mover: _Mover, source: Value, to: Value, count: int, lanes: int) -> None:
    """Copy a contiguous line; the last vector overlaps the one before, if there is one."""
    step = max(1, lanes)
    if count < step:
        mover.put(mover.compute(cg.load_lanes(mover.source, source, lanes, count)), to, count)
        return
    with cg.loop(0, count // step * step, step) as i:
        mover.put(mover.compute(cg.load(mover.source, source + i.iv, lanes)), to + i.iv, step)
    if count % step:
        at = count - step
        cg.store(mover.compute(cg.load(mover.source, source + at, lanes)), mover.result, to + at)


def _grain(bytes_of_item: int) -> int:
    return max(1, GRAIN_BYTES() // max(1, bytes_of_item))


# --- square tiles --------------------------------------------------------------------------------------------


def _emit_squares(kernel: Kernel, move: Permutation, target: CpuTarget) -> Emitted:
    """Emit tiled transposes: lines of the operand become columns of the result; a work item is a block of both."""
    lanes = _lanes(kernel, move, target)
    *others, across = move.axes
    along = next(axis for axis in others if axis.source == 1)
    outer = [axis for axis in others if axis is not along]
    width = cg.bits_of(kernel.results[0].type.element_type) // 8
    large = math.prod(axis.extent for axis in move.axes) * width > target.l2_bytes // 2
    rows, columns = _block_shape(across.extent, along.extent, lanes, width, large)
    if large and along.extent > columns and across.source == along.extent and along.extent * width <= WHOLE_BYTES():
        rows, columns = _block(across.extent, max(lanes, BLOCK_LINES() // 2), lanes), along.extent
    buffered = large and min(rows, columns) > lanes > 0
    line = LINE // width
    # Blocks of the operand's lines are aligned to cache lines, wherever its buffer begins: 5.6 ms instead of 6.1 for
    # 4096x4096 elements of 32 bits in a buffer like numpy's large arrays, 16 bytes off.
    fitted = buffered and columns % line == 0 and all(a.source % line == 0 for a in move.axes if a is not along)
    spare = line - 1 if fitted and columns < along.extent else 0
    extents = [*(a.extent for a in outer), math.ceil((along.extent + spare) / columns), math.ceil(across.extent / rows)]
    with kernel.phase(target) as arguments:
        mover = _Mover(kernel, move, arguments, _goes_past_caches(kernel, across.extent, lanes, target))
        squares = _Squares(mover, along, across, (rows, columns), lanes, buffered)
        with arguments.split_items(extents) as (*places, j, i):
            source, to = _start(outer, places)
            # The last block ends with the array and overlaps the one before.
            row, column = cg.minimum(i * rows, across.extent - rows), j * columns
            if spare:
                column = cg.maximum(column - (cg.address(mover.source) // width) % line, 0)
            squares.block(source, to, row, cg.minimum(column, along.extent - columns))
    return Emitted(math.prod(extents), _grain(2 * rows * columns * width))


def _block_shape(rows: int, columns: int, lanes: int, width: int, large: bool) -> tuple[int, int]:
    """Return the cache block: lines of the operand and elements of each that a work item moves."""
    tall, wide = BLOCK_LINES() if large else BLOCK_LINES() // 2, BLOCK_BYTES() // width
    thin = min(rows, columns)
    if thin <= max(1, lanes):
        tall = wide = THIN_BYTES() // (width * thin)
    return _block(rows, max(lanes, tall), lanes), _block(columns, max(lanes, wide), lanes)


def _block(extent: int, most: int, lanes: int) -> int:
    """Return the size of equal blocks, whole vectors if there is more than one of them."""
    if extent <= most:
        return extent
    most, step = max(1, most), max(1, lanes)
    return math.ceil(extent / math.ceil(extent / most) / step) * step


class _Squares:
    """Transpose a cache block of (rows, columns): lines of the operand, and elements of each."""

    def __init__(
        self,
        mover: _Mover,
        along: TransposeAxis,
        across: TransposeAxis,
        block: tuple[int, int],
        lanes: int,
        buffered: bool,
    ) -> None:
        self.mover, self.along, self.across = mover, along, across
        self.rows, self.columns = block
        self.lanes, self.buffered = lanes, buffered
        # The result's lines are shorter than a vector and contiguous: the surplus lanes of a store are overwritten by
        # the next one.
        self.overlapping = self.rows < lanes and along.target == self.rows
        if self.buffered:
            self.stride = math.ceil(self.rows / lanes) * lanes
            self.buffer = cg.alloca(self.columns * self.stride + lanes, mover.source.element)

    def block(self, source: Value, to: Value, row: Value, column: Value) -> None:
        source = row * self.across.source + column + source
        to = column * self.along.target + row + to
        if not self.lanes:
            self._elements(source, to)
            return
        abreast = self._abreast()
        with cg.loop(0, self.rows, self.lanes) as i:
            r = _clamped(i.iv, self.rows, self.lanes)
            with cg.loop(0, self.columns, self.lanes * abreast) as j:
                c = _clamped(j.iv, self.columns, self.lanes)
                for number in range(abreast):
                    at = c + number * self.lanes
                    self._square(source + r * self.across.source + at, to, r, at, first=number == 0)
        if self.buffered:
            with cg.loop(0, self.columns) as line:
                self._write_line(line.iv * self.stride, line.iv * self.along.target + to)

    def _abreast(self) -> int:
        """Return how many tiles are moved before those below them: all of the same cache lines on set conflicts.

        Where the operand's lines have such a stride that they evict each other from L1, all tiles of the same cache
        lines: for 4096x4096 elements of 32 bits that took 5.86 ms instead of 6.37. Half as large elements were slower
        for it, and so were lines of other strides.
        """
        width = cg.bits_of(self.mover.source.type) // 8
        together = width >= 4 and self.across.source * width % WAY_BYTES() == 0
        whole = LINE // width
        return whole // self.lanes if self.buffered and together and self.columns % whole == 0 else 1

    def _square(self, source: Value, to: Value, row: Value, column: Value, first: bool) -> None:
        """Load as many lines as there are lanes, transpose them in registers, and store columns."""
        lanes = self.lanes
        rows, columns = min(lanes, self.rows), min(lanes, self.columns)
        zero = cg.constant(0, ir.VectorType.get([lanes], self.mover.source.element))
        places = [source + r * self.across.source for r in range(rows)]
        lines = [cg.load_lanes(self.mover.source, at, lanes, columns) for at in places]
        turned = cg.transpose_registers([*lines, *[zero] * (lanes - rows)])[:columns]
        if self.buffered:
            # The parts loaded of each line are too short for the hardware prefetcher.
            for at in places if first and cg.bits_of(self.mover.source.type) > 8 else ():
                cg.prefetch(self.mover.source, at + lanes * self.across.source)
            for c, value in enumerate(turned):
                cg.store(value, self.buffer, (column + c) * self.stride + row)
            return
        for c, value in enumerate(turned):
            at = (column + c) * self.along.target + row + to
            whole = self.overlapping and (c + 1) * rows + lanes <= columns * rows
            cg.store_lanes(self.mover.compute(value), self.mover.result, at, lanes if whole else rows)

    def _write_line(self, start: Value, to: Value) -> None:
        step = self.lanes
        for at in range(0, self.rows, step):
            value = self.mover.compute(cg.load(self.buffer, start + at, step))
            self.mover.put(value, to + at, min(step, self.rows - at))

    def _elements(self, source: Value, to: Value) -> None:
        with cg.loop(0, self.columns) as c, cg.loop(0, self.rows) as r:
            value = cg.load(self.mover.source, source + r.iv * self.across.source + c.iv)
            cg.store(self.mover.compute(value), self.mover.result, c.iv * self.along.target + to + r.iv)


def _clamped(at: Value, extent: int, lanes: int) -> Value:
    """Return the start of a tile, clamped so that the last one ends with the block and overlaps the one before."""
    return cg.minimum(at, extent - lanes) if extent > lanes and extent % lanes else at
