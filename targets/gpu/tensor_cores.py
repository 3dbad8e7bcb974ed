"""Products of bf16 and f16 matrices on tensor cores: `mma.sync` of 16 x 8 x 16, from sm_80 on.

A block brings tiles of both factors into shared memory, along k in both, so that a thread reads the two neighbours that
make one of its registers at once. Rows are 8 elements longer than they need to be, against conflicts of banks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import mlir.ir as ir
from mlir.dialects import gpu, llvm, vector

from stablexla.targets.cpu.contraction_match import Contraction, Operand, match_contraction
from stablexla.targets.cpu.contraction_output import Frame, Scene
from stablexla.targets.cpu.emission import (
    Value,
    branch,
    constant,
    extract,
    index,
    load,
    loop,
    split_index,
    store,
    vector_of,
    when,
)
from stablexla.targets.cpu.kernel import Emitted, Kernel
from stablexla.targets.gpu.arguments import thread_of
from stablexla.targets.gpu.chips import GpuName, generation
from stablexla.targets.gpu.emitters import Launch, gpu_emitter
from stablexla.targets.gpu.warps import WARP, block, shared_buffer, thread

M, N, K = 16, 8, 16
"""One instruction: so many rows, columns, and terms of each sum."""
DEPTH = 32
PITCH = DEPTH + 8
LANES = 8
"""Elements of 16 bytes."""
LEAST = 32


@dataclass(frozen=True)
class Side:
    """One factor as a block reads it: where it begins, and how its elements follow each other.

    Attributes:
        extent: rows or columns of the whole product.
        stride, stride_k: from one of them to the next, and along k.
    """

    operand: Operand
    extent: int
    stride: int
    stride_k: int

    def fits(self, depth: int) -> bool:
        """Whether whole accesses of 16 bytes lie along one of its dimensions, none of them half outside."""
        if self.stride_k == 1:
            return depth % LANES == 0 and self.stride % LANES == 0
        return self.stride == 1 and self.extent % LANES == 0 and self.stride_k % LANES == 0


@dataclass(frozen=True)
class Tiling:
    """Warps of a block, down and across, and instructions that each has, down and across."""

    warps: tuple[int, int]
    parts: tuple[int, int]

    @property
    def rows(self) -> int:
        return self.warps[0] * self.parts[0] * M

    @property
    def columns(self) -> int:
        return self.warps[1] * self.parts[1] * N

    @property
    def threads(self) -> int:
        return prod(self.warps) * WARP


@gpu_emitter("contraction", first=True)
def emit_on_tensor_cores(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Takes products of two factors of bf16 or of f16 that are summed up in f32."""
    contraction = match_contraction(kernel)
    if contraction is None or generation(chip.chip) < 80 or not _is_for_them(contraction):
        return None
    small = min(contraction.m.extent, contraction.n.extent) < 128
    tiling = Tiling((2, 2), (2, 2)) if small else Tiling((2, 4), (4, 4))
    blocks = [
        contraction.batches,
        -(-contraction.m.extent // tiling.rows),
        -(-contraction.n.extent // tiling.columns),
    ]
    shared = (tiling.rows + tiling.columns) * PITCH * 2
    with thread_of(kernel, Launch(prod(blocks), tiling.threads, shared)) as arguments:
        _Block(Scene(contraction, arguments), tiling).write(blocks)
    return Emitted(prod(blocks), 1)


def _is_for_them(c: Contraction) -> bool:
    elements = {str(operand.element) for operand in (c.a, c.b)}
    widened = all([op.name for op in operand.conversion] == ["arith.extf"] for operand in (c.a, c.b))
    if len(elements) != 1 or not elements <= {"bf16", "f16"} or not widened or str(c.sum_type) != "f32":
        return False
    if c.k_outer or min(c.m.extent, c.n.extent, c.k.extent) < LEAST or c.n.c != 1 or c.n.extent % 2:
        return False
    bases = all(getattr(axis, side) % LANES == 0 for axis in c.batch for side in ("a", "b"))
    return bool(c.batches) and bases and all(side.fits(c.k.extent) for side in _sides(c))


def _sides(c: Contraction) -> tuple[Side, Side]:
    return Side(c.a, c.m.extent, c.m.a, c.k.a), Side(c.b, c.n.extent, c.n.b, c.k.b)


class _Block:
    """What one thread does for its block's tile."""

    def __init__(self, scene: Scene, tiling: Tiling) -> None:
        self.scene, self.tiling, self.contraction = scene, tiling, scene.contraction
        self.element = scene.contraction.a.element
        sizes, word = (tiling.rows * PITCH, tiling.columns * PITCH), ir.IntegerType.get_signless(32)
        self._bring_to = [shared_buffer(self.element, size, 2 * at) for size, at in zip(sizes, (0, sizes[0]))]
        self._read_from = [shared_buffer(word, size // 2, 2 * at) for size, at in zip(sizes, (0, sizes[0]))]

    def write(self, blocks: list[int]) -> None:
        """The tile that the number of the block means."""
        batch, row, column = split_index(block(), blocks)
        frame = self.scene.frame(batch)
        first = row * self.tiling.rows, column * self.tiling.columns
        down, across = self.tiling.parts
        zeros = [constant(0.0, ir.F32Type.get())] * (4 * down * across)
        with loop(0, self.contraction.k.extent, DEPTH, zeros) as turn:
            sides = zip(_sides(self.contraction), self._bring_to, (frame.a, frame.b), first, strict=True)
            for number, (side, to, at, start) in enumerate(sides):
                size = (self.tiling.rows, self.tiling.columns)[number]
                self._bring(side, to, index(at), start, turn.iv, size)
            gpu.barrier()
            sums = turn.args
            for k in range(0, DEPTH, K):
                sums = self._multiply(k, sums)
            gpu.barrier()
            turn.yields(*sums)
        self._put(frame, first, turn.results)

    def _bring(self, side: Side, to: Value, at: Value, start: Value, depth: Value, size: int) -> None:
        """A part of a factor into shared memory; zeros stand for what is outside."""
        me, threads = thread(), self.tiling.threads
        along_k = side.stride_k == 1
        type_ = vector_of(LANES, self.element)
        for number in range(size * DEPTH // LANES // threads):
            piece = me + number * threads
            if along_k:
                place, k = piece // (DEPTH // LANES), piece % (DEPTH // LANES) * LANES
            else:
                place, k = piece % (size // LANES) * LANES, piece // (size // LANES)
            there, deep = start + place, depth + k
            found = branch(there.lt(side.extent) & deep.lt(self.contraction.k.extent), [type_])
            buffer = self.scene.inputs[side.operand.number]
            with found.then:
                found.yields(load(buffer, at + there * side.stride + deep * side.stride_k, LANES))
            with found.otherwise:
                found.yields(constant(0.0, type_))
            if along_k:
                store(found.results[0], to, place * PITCH + k)
                continue
            for lane in range(LANES):
                store(extract(found.results[0], lane), to, (place + lane) * PITCH + k)

    def _multiply(self, k: int, sums: list[Value]) -> list[Value]:
        """Sixteen terms of every sum of a warp's tile."""
        (y, x), (group, four) = self._warp(), self._lane()
        down, across = self.tiling.parts
        a, b = self._read_from
        left = [self._words(a, (y * down + i) * M + group, k, four, (0, 8)) for i in range(down)]
        right = [self._words(b, (x * across + j) * N + group, k, four, (0,)) for j in range(across)]
        made = []
        for i in range(down):
            for j in range(across):
                number = 4 * (i * across + j)
                made += self._mma(left[i], right[j], sums[number : number + 4])
        return made

    def _words(self, buffer: Value, row: Value, k: int, four: Value, rows: tuple[int, ...]) -> list[Value]:
        """Registers of a factor: pairs of neighbours along k, of the rows and then 8 further along k."""
        return [
            load(buffer, (row + further) * (PITCH // 2) + (four + (k + deeper) // 2))
            for deeper in (0, 8)
            for further in rows
        ]

    def _mma(self, a: list[Value], b: list[Value], c: list[Value]) -> list[Value]:
        kind = str(self.element)
        registers = [v.ssa for v in (*a, *b)]
        if kind == "f16":
            pair = ir.VectorType.get([2], self.element)
            registers = [llvm.bitcast(pair, v) for v in registers]
        f32 = ir.F32Type.get()
        attributes = {
            f"layout{side}": ir.Attribute.parse(f"#nvvm.mma_layout<{order}>")
            for side, order in zip("AB", ("row", "col"))
        }
        attributes |= {f"multiplicand{s}PtxType": ir.Attribute.parse(f"#nvvm.mma_type<{kind}>") for s in "AB"}
        attributes["shape"] = ir.Attribute.parse(f"#nvvm.shape<m = {M}, n = {N}, k = {K}>")
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([4, 2, 4])
        made = ir.Operation.create(
            "nvvm.mma.sync",
            results=[ir.Type.parse("!llvm.struct<(f32, f32, f32, f32)>")],
            operands=[*registers, *(v.ssa for v in c)],
            attributes=attributes,
        )
        return [Value(llvm.extractvalue(f32, made.results[0], [i])) for i in range(4)]

    def _warp(self) -> tuple[Value, Value]:
        """Where the thread's warp stands in the block."""
        warp = thread() // WARP
        return warp // self.tiling.warps[1], warp % self.tiling.warps[1]

    def _lane(self) -> tuple[Value, Value]:
        """The thread's group of four in its warp, and its number there."""
        lane = thread() % WARP
        return lane // 4, lane % 4

    def _put(self, frame: Frame, first: tuple[Value, Value], sums: list[Value]) -> None:
        """The sums through the epilogue into the results, two neighbours at a time."""
        (y, x), (group, four), c = self._warp(), self._lane(), self.contraction
        down, across = self.tiling.parts
        pair = ir.VectorType.get([2], ir.F32Type.get())
        for i in range(down):
            for half in range(2):
                number = first[0] + (y * down + i) * M + group + half * 8
                row = self.scene.row(frame, number)
                for j in range(across):
                    own = sums[4 * (i * across + j) + 2 * half :][:2]
                    column = first[1] + (x * across + j) * N + four * 2
                    with when(number.lt(c.m.extent) & column.lt(c.n.extent)):
                        self.scene.write(Value(vector.from_elements(pair, [v.ssa for v in own])), row, column, 2)
