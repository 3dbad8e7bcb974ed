"""FlashAttention in bf16 and f16 on tensor cores (`mma.sync`): scores and powers stay in the warp's registers.

A warp has 16 queries. The accumulator fragment of the scores, rounded to 16 bits, has the layout of the left operand
fragment of the second product. Keys and values are double-buffered: the next tile is in flight during the products.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
from mlir.dialects import arith, gpu, vector

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.attention import AttentionOperand, matched_attention
from stablexla.targets.gpu.attention.online_softmax import (
    OnlineSoftmax,
    ScoreTile,
    SoftmaxMatch,
    SoftmaxStep,
    match_softmax,
)
from stablexla.targets.gpu.attention.places import AttentionTile
from stablexla.targets.gpu.attention.places import linear_offset as place_of
from stablexla.targets.gpu.attention.plan import KEYS, AttentionMmaPlan, format_of, plan_attention_mma, rows_are_aligned
from stablexla.targets.gpu.attention.tiles import takes_attention
from stablexla.targets.gpu.chips import compute_capability
from stablexla.targets.gpu.contraction.mma_formats import ROW_BYTES
from stablexla.targets.gpu.contraction.mma_fragments import FragmentReader
from stablexla.targets.gpu.contraction.mma_loads import CHUNKS, copy_chunk, swizzled, thread_chunk
from stablexla.targets.gpu.contraction.mma_plan import FRAGMENT_ROWS, MmaOperand
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.ptx.inline_ptx import (
    commit_copies,
    i32,
    shared_base,
    wait_for_copies,
)
from stablexla.targets.gpu.threads import WARP, Launch, block_index, kernel_function, thread_index

Rows = Callable[[Value], tuple[Value, Value | None]]


@gpu_emitter("attention", priority=10)
def emit_on_tensor_cores(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit softmax attention with 16-bit factors, whose powers are rounded to the same type."""
    with matched_attention(kernel) as attention:
        if attention is None or compute_capability(chip.chip) < 80 or not takes_attention(attention, chip.chip):
            return None
        format_, softmax = format_of(attention), match_softmax(attention)
        if format_ is None or softmax is None or not rows_are_aligned(attention, format_):
            return None
        plan = plan_attention_mma(attention, format_, chip.chip)
        if plan is None:
            return None
        blocks = attention.extent(attention.batch) * -(-attention.extent(attention.queries) // plan.queries)
        with kernel_function(kernel, Launch(blocks, plan.threads, plan.shared)) as arguments:
            _Block(plan, softmax, arguments, chip).write()
        return Emitted(blocks, 1)


class _Copier:
    """One thread's share of the asynchronous copies of a tile into swizzled panels of 128-byte rows."""

    def __init__(self, plan: AttentionMmaPlan, factor: AttentionOperand, extent: int, buffer: Value) -> None:
        self.plan, self.factor, self.extent = plan, factor, extent
        self.place, self.chunk = thread_chunk()
        self.source = cg.address(buffer)
        # With 32 threads a step covers four rows: two offsets.
        steps = range(0, CHUNKS, min(CHUNKS, plan.threads // CHUNKS))
        self.to = {first: swizzled(self.place, self.chunk, (self.place + first) % CHUNKS) for first in steps}

    def issue(self, to: Value, offset: int, rows: int, at: Rows) -> None:
        """Issue the asynchronous copies of a tile to address `to` + `offset`; `at`: a row's offset and mask, if any."""
        each, format_ = self.plan.threads // CHUNKS, self.plan.format
        panels = -(-self.extent // format_.depth)
        for first in range(0, rows, each):
            start, exists = at(self.place + first)
            for panel in range(panels):
                column = self.chunk * format_.chunk + panel * format_.depth
                inside = exists
                if (panel + 1) * format_.depth > self.extent:
                    within = column.lt(self.extent)
                    inside = within if inside is None else inside & within
                to_row = offset + (panel * rows + first) * ROW_BYTES
                copy_chunk(to, self.to[first % CHUNKS], to_row, self.source, start + column, format_.bytes, inside)


class _Block:
    """One thread's part of its warp's 16 queries."""

    def __init__(
        self, plan: AttentionMmaPlan, softmax: SoftmaxMatch, arguments: KernelArguments, chip: GpuName
    ) -> None:
        self.plan, self.attention, self.chip = plan, plan.attention, compute_capability(chip.chip)
        a, f = plan.attention, plan.format
        lanes = 2 if a.keys % 2 == 0 else 0
        self.online = OnlineSoftmax(a, softmax, arguments, 4, lanes, quick=True)
        self.places = AttentionTile.of(a, block_index(), plan.queries)
        self.result = arguments.results[0]
        inputs = [arguments.inputs[x.operand.number] for x in (a.q, a.k, a.v)]
        extents = (a.depth, a.depth, a.width)
        self.q, self.k, self.v = (
            _Copier(plan, x, extent, buffer) for x, extent, buffer in zip((a.q, a.k, a.v), extents, inputs, strict=True)
        )
        self.warp, lane = thread_index() // WARP, thread_index() % WARP
        self.group, self.four = lane // 4, lane % 4
        along, turned = MmaOperand(0, 0, 0, 1, True, False), MmaOperand(0, 0, 1, 0, False, False)
        units = -(-a.width // FRAGMENT_ROWS)
        self.left = FragmentReader(along, f, self.warp * FRAGMENT_ROWS, 1, is_left=True)
        self.keys = FragmentReader(along, f, cg.index(0), KEYS // FRAGMENT_ROWS, is_left=False)
        self.values = FragmentReader(turned, f, cg.index(0), units, is_left=False)
        self.columns = -(-a.width // 8)

    def write(self) -> None:
        """Emit all of the block's rows of the result."""
        a, plan = self.attention, self.plan
        base = shared_base()
        self.q.issue(base, 0, plan.queries, lambda n: (place_of(a.q.strides, self.places.row(n)), None))
        first = base + plan.first_stage
        self._issue(first, cg.index(0))
        commit_copies()
        rows = [self.places.row(self.warp * FRAGMENT_ROWS + self.group + 8 * half) for half in range(2)]
        states = [v for _ in rows for v in self.online.start()]
        sums = [cg.constant(0.0, a.element)] * (4 * self.columns)
        count = len(states)
        with cg.loop(0, a.keys, KEYS, [*states, *sums, first]) as iteration:
            states, sums, here = iteration.args[:count], iteration.args[count:-1], iteration.args[-1]
            after = cg.select(here.eq(first), first + plan.stage, first)
            with cg.when((iteration.iv + KEYS).lt(a.keys)):
                self._issue(after, iteration.iv + KEYS)
            commit_copies()
            wait_for_copies(1)
            gpu.barrier()
            scores = self._scores(base, here)
            steps = [self._row(iteration.iv, at, half, scores, states) for half, at in enumerate(rows)]
            powers = [self._words(step.powers) for step in steps]
            factors = [step.factor for step in steps]
            sums = [s * factors[n // 2 % 2] for n, s in enumerate(sums)]
            sums = self._add_values(here, powers, sums)
            gpu.barrier()  # all warps have read the stage before it is overwritten
            iteration.yields(*[v for step in steps for v in (*step.largest, *step.total)], *sums, after)
        self._put(rows, iteration.results[:count], iteration.results[count:-1])

    def _issue(self, to: Value, first: Value) -> None:
        """Issue the asynchronous copies of the tile of keys and values that begins at key `first`."""
        a, plan = self.attention, self.plan
        key = a.rows.chain.inner
        for copier, offset in ((self.k, 0), (self.v, plan.panels[0] * KEYS * ROW_BYTES)):
            strides = copier.factor.strides
            rows = _keys(place_of(strides, self.places.batch) + first * strides[key], strides[key], first, a.keys)
            copier.issue(to, offset, KEYS, rows)

    def _scores(self, base: Value, here: Value) -> list[Value]:
        """Compute the tile's scores: of every 8 keys two neighbours, of the thread's first query, then its second."""
        plan, f = self.plan, self.plan.format
        scores = [cg.constant(0.0, self.attention.element)] * (4 * KEYS // 8)
        for step in range(-(-self.attention.depth // FRAGMENT_ROWS)):
            panel, within = step // 4, step % 4
            (query,) = self.left.read(base, panel * plan.queries * ROW_BYTES, within)
            made = list[Value]()
            for unit in self.keys.read(here, panel * KEYS * ROW_BYTES, within):
                for column in self.keys.columns(unit):
                    made += f.multiply(query, column, scores[len(made) : len(made) + 4], self.chip)
            scores = made
        return scores

    def _row(
        self, first: Value, at: dict[int, Index], half: int, scores: list[Value], states: list[Value]
    ) -> SoftmaxStep:
        a, lanes = self.attention, self.online.lanes
        parts = []
        for number in range(KEYS // 8):
            pair = scores[4 * number + 2 * half : 4 * number + 2 * half + 2]
            for i, part in enumerate([_pair(pair)] if lanes else pair):
                key, inside = first + self.four * 2 + (8 * number + i), None
                if a.keys % KEYS:
                    inside = key.lt(a.keys)
                    key = cg.minimum(key, a.keys - max(1, lanes))
                parts.append(ScoreTile(key, part, inside))
        return self.online.step(at, states[2 * half : 2 * half + 2], parts)

    def _words(self, powers: list[Value]) -> list[Value]:
        """Pack the powers as the left operand fragment of the second product: two neighbours in a word."""
        f = self.plan.format
        narrow = ir.BF16Type.get() if f.name == "bf16" else ir.F16Type.get()
        pairs = powers if self.online.lanes else [_pair(powers[n : n + 2]) for n in range(0, len(powers), 2)]
        words = []
        for pair in pairs:
            short = arith.truncf(cg.vector_of(2, narrow), pair.ssa)
            words.append(cg.extract(Value(vector.bitcast(ir.VectorType.get([1], i32()), short)), 0))
        return words

    def _add_values(self, here: Value, powers: list[list[Value]], sums: list[Value]) -> list[Value]:
        plan, f = self.plan, self.plan.format
        offset = plan.panels[0] * KEYS * ROW_BYTES
        for step in range(KEYS // FRAGMENT_ROWS):
            left = [powers[half][2 * step + deep] for deep in range(2) for half in range(2)]
            made = list[Value]()
            for unit in self.values.read(here, offset, step):
                for column in self.values.columns(unit):
                    if len(made) < len(sums):
                        made += f.multiply(left, column, sums[len(made) : len(made) + 4], self.chip)
            sums = made
        return sums

    def _put(self, rows: list[dict[int, Index]], states: list[Value], sums: list[Value]) -> None:
        a = self.attention
        for half, at in enumerate(rows):
            factor = cg.constant(1.0, a.element) / self.online.finish(at, states[2 * half : 2 * half + 2])
            with cg.when(self.places.inside(self.warp * FRAGMENT_ROWS + self.group + 8 * half)):
                for number in range(self.columns):
                    pair = _pair(sums[4 * number + 2 * half : 4 * number + 2 * half + 2])
                    self.places.write(self.result, at, self.four * 2 + 8 * number, pair * cg.splat(factor, 2))


def _keys(base: Value, stride: int, first: Value, extent: int) -> Rows:
    """Address the rows of keys from key `first` on, which lies at `base`; mask those beyond `extent`."""

    def at(number: Value) -> tuple[Value, Value | None]:
        return base + number * stride, (first + number).lt(extent) if extent % KEYS else None

    return at


def _pair(values: list[Value]) -> Value:
    return Value(vector.from_elements(ir.VectorType.get([2], values[0].type), [v.ssa for v in values]))
