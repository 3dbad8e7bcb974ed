"""FlashAttention of any type: tiles of queries, keys and values in shared memory, accumulators in registers.

A block has 64 queries and iterates over tiles of keys; 16 threads share the scores of four queries. Scores and powers
never reach global memory.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
from mlir.dialects import gpu

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.match.attention import Attention, AttentionOperand, matched_attention
from stablexla.targets.codegen.match.attention_outline import outline_attentions
from stablexla.targets.gpu.attention.online_softmax import OnlineSoftmax, ScoreTile, SoftmaxMatch, match_softmax
from stablexla.targets.gpu.attention.places import AttentionTile, linear_offset, load_aligned, outer_strides
from stablexla.targets.gpu.chips import DEFAULT, shared_limit
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.threads import Launch, block_index, kernel_function, shared_buffer, thread_index
from stablexla.targets.pipeline.passes import module_pass

SIDE, ROWS, LANES = 16, 4, 4
"""Threads along each side of the score tile, queries of a thread, and vector width of loads."""
QUERIES, THREADS = SIDE * ROWS, SIDE * SIDE
MOST_SHARED = 99 << 10


@dataclass(frozen=True)
class AttentionTilesPlan:
    """Tiling: keys of a tile, and the padded extents in shared memory.

    Attributes:
        attention: the matched attention.
        keys: of a tile.
    """

    attention: Attention
    keys: int

    @property
    def depth(self) -> int:
        """Head dimension of queries and keys in shared memory, padded."""
        return -(-self.attention.depth // LANES) * LANES

    @property
    def groups(self) -> int:
        """Vectors of the result's columns per thread."""
        return -(-self.attention.width // (SIDE * LANES))

    @property
    def width(self) -> int:
        """Columns of the result in shared memory, padded."""
        return self.groups * SIDE * LANES

    @property
    def sizes(self) -> list[int]:
        """Elements of the buffers of queries, keys, values and powers; rows are padded against bank conflicts."""
        across = self.depth + LANES
        return [QUERIES * across, self.keys * across, self.keys * self.width, QUERIES * (self.keys + LANES)]

    @property
    def bytes(self) -> int:
        """Shared memory of a block in bytes."""
        return sum(self.sizes) * (cg.bits_of(self.attention.element) // 8)


def plan_attention_tiles(attention: Attention, chip: str) -> AttentionTilesPlan | None:
    """Choose the plan with the most keys that fits into a block's shared memory on a chip, or None."""
    most = min(MOST_SHARED, shared_limit(chip))
    plans = (AttentionTilesPlan(attention, keys) for keys in (64, 32, 16))
    return next((plan for plan in plans if plan.bytes <= most), None)


def takes_attention(attention: Attention, chip: str) -> bool:
    """Return whether a chip has a kernel for an attention."""
    extents = attention.rows.chain.nest.extents
    return bool(all(extents) and attention.depth and attention.width) and (
        match_softmax(attention) is not None and plan_attention_tiles(attention, chip) is not None
    )


@gpu_emitter("attention")
def emit_attention(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit softmax attention whose tiles fit into shared memory."""
    with matched_attention(kernel) as attention:
        if attention is None or not takes_attention(attention, chip.chip):
            return None
        plan, softmax = plan_attention_tiles(attention, chip.chip), match_softmax(attention)
        assert plan is not None
        assert softmax is not None
        blocks = attention.extent(attention.batch) * -(-attention.extent(attention.queries) // QUERIES)
        with kernel_function(kernel, Launch(blocks, THREADS, plan.bytes)) as arguments:
            _Block(plan, softmax, arguments).write()
        return Emitted(blocks, 1)


class _Block:
    """One thread's part of its block's queries."""

    def __init__(self, plan: AttentionTilesPlan, softmax: SoftmaxMatch, arguments: KernelArguments) -> None:
        self.plan, self.attention, self.arguments = plan, plan.attention, arguments
        self.online = OnlineSoftmax(plan.attention, softmax, arguments, SIDE, 0)
        element, first, buffers = plan.attention.element, 0, []
        for size in plan.sizes:
            buffers.append(shared_buffer(element, size, first))
            first += size * (cg.bits_of(element) // 8)
        self.q, self.k, self.v, self.p = buffers
        self.places = AttentionTile.of(plan.attention, block_index(), QUERIES)
        self.y, self.x = thread_index() // SIDE, thread_index() % SIDE

    def write(self) -> None:
        """Emit all of the block's rows of the result."""
        a, plan = self.attention, self.plan
        self._bring_queries()
        rows = [self.places.row(self.y * ROWS + i) for i in range(ROWS)]
        zero = cg.constant(0.0, cg.vector_of(LANES, a.element))
        states = [v for _ in rows for v in self.online.start()]
        sums = [zero] * (ROWS * plan.groups)
        with cg.loop(0, a.keys, plan.keys, [*states, *sums]) as iteration:
            states, sums = iteration.args[: len(states)], iteration.args[len(states) :]
            gpu.barrier()  # the previous tile has been read
            self._copy_tile(a.k, self.k, iteration.iv, a.depth, plan.depth, plan.depth + LANES)
            self._copy_tile(a.v, self.v, iteration.iv, a.width, plan.width, plan.width)
            gpu.barrier()
            scores = self._scores()
            made, factors = list[Value](), list[Value]()
            for i, at in enumerate(rows):
                parts = self._parts(iteration.iv, scores[i])
                step = self.online.step(at, states[2 * i : 2 * i + 2], parts)
                made += [*step.largest, *step.total]
                factors.append(step.factor)
                for c, power in enumerate(step.powers):
                    cg.store(power, self.p, (self.y * ROWS + i) * (plan.keys + LANES) + self.x + c * SIDE)
            gpu.barrier()
            sums = [value * cg.splat(factors[n // plan.groups], LANES) for n, value in enumerate(sums)]
            iteration.yields(*made, *self._values(sums))
        states, sums = iteration.results[: len(states)], iteration.results[len(states) :]
        self._put(rows, states, sums)

    def _parts(self, first: Value, scores: list[Value]) -> list[ScoreTile]:
        a, parts = self.attention, []
        for c, score in enumerate(scores):
            key, inside = first + self.x + c * SIDE, None
            if a.keys % self.plan.keys:
                inside = key.lt(a.keys)
                key = cg.minimum(key, a.keys - 1)
            parts.append(ScoreTile(key, score, inside))
        return parts

    # --- into shared memory ---------------------------------------------------------------------------------

    def _bring_queries(self) -> None:
        a, plan = self.attention, self.plan
        lanes = _lanes(a.q, a.depth)
        pieces = plan.depth // lanes

        def one(item: Value) -> None:
            row, piece = item // pieces, item % pieces * lanes
            place = row * (plan.depth + LANES) + piece
            self._copy(a.q, self.places.row(row), piece, (a.depth, plan.depth), lanes, self.q, place)

        _deal_out(QUERIES * pieces, one)

    def _copy_tile(
        self, factor: AttentionOperand, to: Value, first: Value, extent: int, padded: int, pitch: int
    ) -> None:
        """Load a tile of keys or values into shared memory, zero-padded."""
        a, plan, key = self.attention, self.plan, self.attention.rows.chain.inner
        lanes = _lanes(factor, extent)
        pieces = padded // lanes

        def one(item: Value) -> None:
            row, piece = item // pieces, item % pieces * lanes
            if lanes == 1 and factor.inner != 1:  # then keys may have unit stride
                row, piece = item % plan.keys, item // plan.keys
            at: dict[int, Index] = {**self.places.batch, key: cg.minimum(first + row, a.keys - 1)}
            inside = (first + row).lt(a.keys) if a.keys % plan.keys else None
            self._copy(factor, at, piece, (extent, padded), lanes, to, row * pitch + piece, inside)

        _deal_out(plan.keys * pieces, one)

    def _copy(
        self,
        factor: AttentionOperand,
        at: dict[int, Index],
        piece: Value,
        extents: tuple[int, int],
        lanes: int,
        to: Value,
        place: Value,
        inside: Value | None = None,
    ) -> None:
        element, extent = self.attention.element, extents[0]
        if extent < extents[1]:
            within = piece.lt(extent)
            inside = within if inside is None else inside & within
            piece = cg.minimum(piece, extent - lanes)
        buffer = self.arguments.inputs[factor.operand.number]
        value = load_aligned(
            buffer, factor.operand, element, linear_offset(factor.strides, at) + piece * factor.inner, lanes
        )
        if inside is not None:
            value = cg.select(inside, value, cg.constant(0.0, value.type))
        cg.store(value, to, place)

    # --- products -------------------------------------------------------------------------------------------

    def _scores(self) -> list[list[Value]]:
        """Compute the thread's scores: of its rows, of every sixteenth key."""
        plan, element = self.plan, self.attention.element
        count, pitch = plan.keys // SIDE, plan.depth + LANES
        with cg.loop(0, plan.depth, LANES, [cg.constant(0.0, element)] * (ROWS * count)) as iteration:
            left = [cg.load(self.q, (self.y * ROWS + i) * pitch + iteration.iv, LANES) for i in range(ROWS)]
            right = [cg.load(self.k, (self.x + c * SIDE) * pitch + iteration.iv, LANES) for c in range(count)]
            sums = iteration.args
            for d in range(LANES):
                a, b = [cg.extract(v, d) for v in left], [cg.extract(v, d) for v in right]
                sums = [cg.fma(a[n // count], b[n % count], s) for n, s in enumerate(sums)]
            iteration.yields(*sums)
        return [iteration.results[i * count : (i + 1) * count] for i in range(ROWS)]

    def _values(self, sums: list[Value]) -> list[Value]:
        """Accumulate the tile's powers times its values."""
        plan = self.plan
        with cg.loop(0, plan.keys, LANES, sums) as iteration:
            start = iteration.iv + self.y * (ROWS * (plan.keys + LANES))
            powers = [cg.load(self.p, start + i * (plan.keys + LANES), LANES) for i in range(ROWS)]
            made = iteration.args
            for k in range(LANES):
                line = (iteration.iv + k) * plan.width + self.x * LANES
                values = [cg.load(self.v, line + g * (SIDE * LANES), LANES) for g in range(plan.groups)]
                each = [cg.splat(cg.extract(p, k), LANES) for p in powers]
                made = [cg.fma(each[n // plan.groups], values[n % plan.groups], s) for n, s in enumerate(made)]
            iteration.yields(*made)
        return iteration.results

    def _put(self, rows: list[dict[int, Index]], states: list[Value], sums: list[Value]) -> None:
        a, plan = self.attention, self.plan
        buffer = self.arguments.results[0]
        for i, at in enumerate(rows):
            factor = cg.constant(1.0, a.element) / self.online.finish(at, states[2 * i : 2 * i + 2])
            for g in range(plan.groups):
                value = sums[i * plan.groups + g] * cg.splat(factor, LANES)
                column = self.x * LANES + g * (SIDE * LANES)
                whole = a.width % LANES == 0 and a.out_inner == 1
                for lane in (None,) if whole else range(LANES):
                    own = column if lane is None else column + lane
                    with cg.when(self.places.inside(self.y * ROWS + i) & own.lt(a.width)):
                        self.places.write(buffer, at, own, value if lane is None else cg.extract(value, lane))


def _lanes(factor: AttentionOperand, extent: int) -> int:
    """Return the vector width of copies: four, where vectors are aligned."""
    whole = factor.inner == 1 and extent % LANES == 0 and all(step % LANES == 0 for step in outer_strides(factor))
    return LANES if whole else 1


def _deal_out(items: int, one: Callable[[Value], None]) -> None:
    """Emit a block-stride loop over items."""
    for first in range(0, items, THREADS):
        item = thread_index() + first
        if first + THREADS <= items:
            one(item)
            continue
        with cg.when(item.lt(items)):
            one(item)


@module_pass("stablexla-find-gpu-attention", "moves softmax(q k) v together, where a GPU's kernel takes it")
def find_gpu_attention(module: ir.Module, *, chip: str = DEFAULT) -> None:
    """Fuse attention as `stablexla-find-attention` does for the CPU.

    Args:
        chip: the chip whose kernel has to take it.
    """
    outline_attentions(module, lambda attention: takes_attention(attention, chip))
