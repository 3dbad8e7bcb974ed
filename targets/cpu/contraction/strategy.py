"""Emitter of contractions (matrix products): heuristics that choose a kernel by the product's shape."""

from __future__ import annotations

import math
from collections.abc import Callable

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import ITEM_WORK, CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction, match_contraction
from stablexla.targets.codegen.match.epilogue import accumulator_type
from stablexla.targets.codegen.sizes import balanced
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.cpu.contraction.dot_instructions import (
    choose_multiply_add,
    f32_multiply_add,
    plain_multiply_add,
    vector_multiply_add,
)
from stablexla.targets.cpu.contraction.dot_units import emit_dot_units
from stablexla.targets.cpu.contraction.factors import Bundle
from stablexla.targets.cpu.contraction.packed import PackedPlan, emit_packed
from stablexla.targets.cpu.contraction.register_tile import RegisterTile
from stablexla.targets.cpu.contraction.short import ShortPlan, choose_register_tile, emit_short, sums_by_calls
from stablexla.targets.cpu.contraction.skinny_dots import READ_BYTES, SkinnyDotsPlan, emit_skinny_dots, row_groups
from stablexla.targets.cpu.contraction.skinny_narrow import emit_skinny_narrow
from stablexla.targets.cpu.contraction.skinny_rows import SkinnyRowsPlan, emit_skinny_rows
from stablexla.targets.cpu.emitters import emitter

# The largest depth whose accumulators stay in registers for all of k: a B panel then fits L1.
SHORT_DEPTH = Gate("contraction.short-depth", 512, eager=1)
# Bytes of all three matrices of a small product, and of a lhs along m, for which it is not packed.
SMALL_BYTES = Gate("contraction.small-bytes", 800 << 10, eager=1)
FEW_PAGES_BYTES = Gate("contraction.few-pages-bytes", 64 << 10, eager=1)
# Rows that reuse rhs, and its bytes, from which on packing it pays.
WORTH_PACKING_ROWS = Gate("contraction.worth-packing-rows", 48, eager=1)
WORTH_PACKING_BYTES = Gate("contraction.worth-packing-bytes", 96 << 10, eager=1)
# Bytes of a packed rhs on a work item's stack.
RHS_BYTES = Gate("contraction.rhs-bytes", 128 << 10, eager=256)
# Vectors of k up to which many rows by a rhs that an item can pack are a short product.
THIN = Gate("contraction.thin", 3, eager=1)
# B panels of an item of the packing phase; more of a matrix that streams from memory: long pieces of its rows.
PANELS = Gate("contraction.panels", 8, eager=1)
FAR_PANELS = Gate("contraction.far-panels", 48, eager=1)
# Bytes of a row that are read together at almost the speed of whole rows.
LONG_PIECE = Gate("contraction.long-piece", 768, eager=1)
# The most rows of a skinny product, bandwidth-bound by the other matrix.
SKINNY_ROWS = Gate("contraction.skinny-rows", 16, eager=1)
# The most rows of one whose time is that of loading rhs even from L2.
FEW_ROWS = Gate("contraction.few-rows", 4, eager=1)
# Split-K of a skinny product: at most so many parts, some for each core, each of at least about so many bytes: each of
# the streams read concurrently is a quarter of that, and spans several pages.
MOST_PARTS = Gate("contraction.most-parts", 8, eager=2)
PART_BYTES = Gate("contraction.part-bytes", 256 << 10, eager=64)
# Steps of k of a part for each row of lhs.
PART_STEPS = Gate("contraction.part-steps", 4, eager=1)
# Bytes of lhs that an item copies to its stack.
ROWS_LHS_BYTES = Gate("contraction.rows-lhs-bytes", 64 << 10, eager=64)
# Bytes of lhs that an item packs beside a factor read along k: it stays in L2.
DOTS_LHS_BYTES = Gate("contraction.dots-lhs-bytes", 176 << 10, eager=64)
# The most columns of an item that reads lhs as it lies; with more, packing it is a small part of the work.
READ_COLUMNS = Gate("contraction.read-columns", 512, eager=32)
# The L2 cache: bytes of a way, ways, bytes of a line.
L2_WAY, L2_WAYS, LINE = 64 << 10, 8, 64
# Blocks of k whose partial sums are accumulated one after the other.
MOST_BLOCKS = Gate("contraction.most-blocks", 128, eager=2)
# Rows of a block for each thread, where rhs is packed once for many calls: all threads read all of it then, but each
# finds in its L2 the rows of lhs that it computed before, and computes those that it reads next. Fewer rows would wait
# for rhs.
SPLIT_ROWS = Gate("contraction.split-rows", 45, eager=1)
# Bytes of a B panel that each row tile of a block reads from L1, where the block's partial sums stay in L2.
NEAR_PANEL = Gate("contraction.near-panel-bytes", 32 << 10, eager=1024)
# Multiply-adds of narrow elements below which packing costs more than it saves.
LEAST_WORK = Gate("contraction.least-work", 20_000, eager=1)


@emitter("contraction")
def emit_contraction(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit products of two arrays with an elementwise epilogue; None for sums of any other form."""
    with kernel.func.context, ir.Location.unknown():
        contraction = match_contraction(kernel)
        if contraction is None or not _has_lanes(contraction):
            return None
        sizes = _Sizes(contraction, target)
        return next(emitted for strategy in STRATEGIES if (emitted := strategy(kernel, sizes)) is not None)


def _has_lanes(c: Contraction) -> bool:
    """Whether elements of a factor are adjacent along n or k."""
    return all(x.b.factor is None or 1 in (x.n.b, x.k.b) for x in (c, c.swapped()))


PACKED_TILES = {32: {4: (6, 1.0), 3: (8, 1.08), 2: (12, 1.16), 1: (14, 1.3)}, 16: {2: (6, 1.0), 3: (4, 1.1)}}
"""By registers, and the vectors of a tile: its rows, and what its work costs beside that of the first."""


class _Sizes:
    """A contraction with the figures of the cost model."""

    def __init__(self, contraction: Contraction, target: CpuTarget) -> None:
        self.contraction = c = contraction
        self.target = target
        self.bytes = cg.bits_of(accumulator_type(c)) // 8
        self.lanes = max(1, target.vector_bits // 8 // self.bytes)
        self.m, self.n = c.m.extent, c.n.extent
        self.depth = c.depth
        self.work = c.batches * self.m * self.n * self.depth
        read = c.batches * self.n * self.depth * cg.bits_of(c.b.element) // 8
        wanted = max(self.work, read * ITEM_WORK() // READ_BYTES)
        self.items = target.work_items(wanted or c.batches * self.m * self.n)


# --- the table -----------------------------------------------------------------------------------------------


def _no_elements(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    if math.prod(sizes.contraction.shape):
        return None
    with kernel.phase(sizes.target):
        pass
    return Emitted(items=1, grain=1)


def _computed(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    """A product with a factor that is computed where it is read."""
    if sizes.contraction.a.factor is not None:
        sizes = _Sizes(sizes.contraction.swapped(), sizes.target)
    c, target = sizes.contraction, sizes.target
    if c.b.factor is None:
        return None
    if sizes.m > SKINNY_ROWS():
        return emit_packed(kernel, c, target, _plan_packed(sizes))
    if c.k.b == 1:
        return emit_skinny_dots(kernel, c, target, _plan_computed_dots(sizes), plain_multiply_add(c))
    return emit_skinny_rows(kernel, c, target, _plan_computed_rows(sizes))


def _narrow(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    """Narrow integers and small floats, where an instruction multiplies them in groups along k."""
    c, target = sizes.contraction, sizes.target
    product = choose_multiply_add(c, target) or f32_multiply_add(c)
    if product is None or sizes.work < LEAST_WORK() or c.k_outer or _is_one_line(c):
        return None
    few = emit_skinny_narrow(kernel, c, vector_multiply_add(product, c, target), target)
    return emit_dot_units(kernel, c, product, target) if few is None and c.n.c == 1 else few


def _is_one_line(c: Contraction) -> bool:
    """Whether a large operand is used at most twice: it is widened in place then, in half the time."""
    return any(view.m.extent <= 2 and view.k.b != 1 for view in (c, c.swapped()))


def _packed_once(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    """A matrix that is packed once for many calls: a large one by rows enough to be compute-bound, any by many rows."""
    c = sizes.contraction
    if c.b.number not in kernel.lasting:
        return None
    rhs = sizes.n * sizes.depth * sizes.bytes
    large = FEW_ROWS() < sizes.m <= SKINNY_ROWS() and rhs > sizes.target.l2_bytes // 4
    # A short product chooses a better tile for less than three vectors of columns.
    many = c.batches == 1 and sizes.m >= WORTH_PACKING_ROWS() and sizes.n > 2 * sizes.lanes and not _is_thin(sizes)
    return _packed(kernel, sizes) if large or many else None


def _skinny_dots(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    skinny = _oriented_for_lines(sizes)
    if skinny is None:
        return None
    c = skinny.contraction
    return emit_skinny_dots(kernel, c, skinny.target, _plan_dots(skinny), plain_multiply_add(c))


def _skinny_rows(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    return emit_skinny_rows(kernel, sizes.contraction, sizes.target, _plan_rows(sizes)) if _is_rows(sizes) else None


def _short(kernel: Kernel, sizes: _Sizes) -> Emitted | None:
    return emit_short(kernel, sizes.contraction, sizes.target, _plan_short(sizes)) if _is_short(sizes) else None


def _packed(kernel: Kernel, sizes: _Sizes) -> Emitted:
    return emit_packed(kernel, sizes.contraction, sizes.target, _plan_packed(sizes))


STRATEGIES: tuple[Callable[[Kernel, _Sizes], Emitted | None], ...] = (
    _no_elements,
    _computed,
    _narrow,
    _packed_once,
    _skinny_dots,
    _skinny_rows,
    _short,
    _packed,
)
"""How a contraction can be emitted: the first that does not return None is taken; the last takes all."""


# --- few rows ------------------------------------------------------------------------------------------------


def _oriented_for_lines(sizes: _Sizes) -> _Sizes | None:
    """Orient the contraction with the skinny matrix as lhs and the large one as rhs, if that is contiguous along k."""
    views = [sizes, _Sizes(sizes.contraction.swapped(), sizes.target)]
    return next((view for view in views if _is_dots(view)), None)


def _is_dots(sizes: _Sizes) -> bool:
    c = sizes.contraction
    # A horizontal reduction costs as much as some steps of k; below that, packing rhs is cheaper.
    pays = c.k.extent >= sizes.lanes * (2 + 1.5 * sizes.m)
    if c.k.b != 1 or not pays or sizes.m > SKINNY_ROWS() or sizes.m > sizes.n:
        return False
    return c.k.a == 1 or (not c.k_outer and sizes.m * c.k.extent * sizes.bytes <= sizes.target.lhs_bytes)


def _plan_dots(sizes: _Sizes) -> SkinnyDotsPlan:
    wide = sizes.m == 1 and sizes.n >= sizes.lanes
    sums, rows = (24, 8) if sizes.target.num_vector_registers >= 32 else (12, 4)
    width = sizes.lanes if wide else min(sums // row_groups(sizes.m, rows)[0], 4, sizes.n)
    blocks = math.ceil(sizes.items / sizes.contraction.batches)
    # Results are stored in whole vectors, so blocks begin at multiples of them.
    columns = balanced(sizes.n, min(1024, math.ceil(sizes.n / blocks)), sizes.lanes)
    depth = _depth_of_dots(sizes) if width < sizes.m else 0
    return SkinnyDotsPlan(columns, width, pack=sizes.contraction.k.a != 1, depth=depth, rows=rows, ahead=depth > 0)


def _depth_of_dots(sizes: _Sizes) -> int:
    """Choose a block of k whose part of lhs stays in L1, or 0 for no blocks.

    A tile of more rows than lines loads lhs more than rhs: from L2, that takes longer than reading rhs from memory.
    Tiles of 16 registers are too small for the reductions at the end of each block.
    """
    l1, line = sizes.target.l1_bytes, sizes.m * sizes.bytes
    if sizes.target.num_vector_registers < 32 or sizes.contraction.k_outer or sizes.depth * line < 2 * l1:
        return 0
    return balanced(sizes.depth, l1 * 2 // 3 // line, 8 * sizes.lanes)


def _is_rows(sizes: _Sizes) -> bool:
    c = sizes.contraction
    # Of less than two vectors of columns a micro-kernel is better for as many rows as lanes.
    wide = sizes.n >= (1 if sizes.m <= SKINNY_ROWS() // 2 else 2) * sizes.lanes
    along_n = c.n.b == 1 and c.n.c == 1 and wide
    rhs = sizes.n * sizes.depth * sizes.bytes
    large = rhs > sizes.target.l2_bytes or sizes.depth > SHORT_DEPTH()
    # Accumulators that stay in registers for all of k read rhs a panel at a time, a few cache lines of each row of it;
    # that pays for several rows of lhs, and where rhs is in L1. Packing rhs never pays for so few rows.
    accumulated = large or (sizes.m <= FEW_ROWS() and rhs > sizes.target.l1_bytes) or not _is_short(sizes)
    return along_n and accumulated and sizes.m <= SKINNY_ROWS() and not _is_thin(sizes)


def _is_thin(sizes: _Sizes) -> bool:
    """Whether k is so short that sums take less than packing both operands, or rhs for all items."""
    near = sizes.depth * sizes.n * sizes.bytes <= RHS_BYTES()
    if sizes.m >= WORTH_PACKING_ROWS() and near:  # an item packs rhs by itself where it does not lie along n
        return sizes.depth <= THIN() * sizes.lanes
    return sizes.depth <= 2 * sizes.lanes and sizes.contraction.n.b == 1


def _plan_rows(sizes: _Sizes) -> SkinnyRowsPlan:
    """Plan split-K from the shape alone: the order of additions does not depend on the number of threads."""
    c = sizes.contraction
    streams, steps, rows = (4, 1, 2) if sizes.m <= 2 else (4, 2, 4)
    width = min(4, 12 // row_groups(sizes.m, rows)[0])
    read = sizes.n * sizes.depth * sizes.bytes
    # A part's sums are written and read again: a small share of the part's rows.
    parts = max(1, min(MOST_PARTS() // c.batches, read // PART_BYTES(), c.k.extent // (PART_STEPS() * sizes.m)))
    if sizes.m > 1:
        parts = max(parts, math.ceil(sizes.m * c.k.extent * sizes.bytes / ROWS_LHS_BYTES()))
    depth = balanced(c.k.extent, math.ceil(c.k.extent / parts), streams * steps)
    parts = math.ceil(c.k.extent / depth)
    most = max(16 * sizes.lanes, sizes.target.l2_bytes // 8 // (sizes.m * sizes.bytes))
    blocks = max(math.ceil(sizes.n / most), math.ceil(sizes.items / (parts * c.batches)))
    columns = balanced(sizes.n, max(math.ceil(sizes.n / blocks), 32 * sizes.lanes), width * sizes.lanes)
    return SkinnyRowsPlan(columns, depth, streams, steps, rows, width)


def _plan_computed_rows(sizes: _Sizes) -> SkinnyRowsPlan:
    """Plan as for rows in memory; the elements of one group's scale are read together."""
    c = sizes.contraction
    bundle = Bundle.of(c)
    size = len(bundle.offsets)
    streams, steps = 2, max(1, 4 // size)
    rows, width = _computed_tile(sizes)
    parts = max(1, min(MOST_PARTS() // c.batches, sizes.n * sizes.depth // PART_BYTES()))
    if sizes.m > 1:
        parts = max(parts, math.ceil(sizes.m * c.k.extent * sizes.bytes / ROWS_LHS_BYTES()))
    depth = balanced(bundle.steps, math.ceil(bundle.steps / parts), streams * steps)
    parts = math.ceil(bundle.steps / depth)
    most = max(16 * sizes.lanes, sizes.target.l2_bytes // 8 // (sizes.m * sizes.bytes))
    blocks = max(math.ceil(sizes.n / most), math.ceil(sizes.items / (parts * c.batches)))
    columns = balanced(sizes.n, max(math.ceil(sizes.n / blocks), 32 * sizes.lanes), width * sizes.lanes)
    return SkinnyRowsPlan(columns, depth, streams, steps, rows, width)


def _plan_computed_dots(sizes: _Sizes) -> SkinnyDotsPlan:
    """Plan a few lines at a time, of which each is read in long pieces."""
    c, lanes = sizes.contraction, sizes.lanes
    bundle = Bundle.of(c)
    rows, width = _computed_tile(sizes)
    blocks = math.ceil(sizes.items / c.batches)
    columns = balanced(sizes.n, min(1024, math.ceil(sizes.n / blocks)), lanes)
    most = max(1, DOTS_LHS_BYTES() // (sizes.m * len(bundle.offsets) * sizes.bytes) // (8 * lanes)) * 8 * lanes
    return SkinnyDotsPlan(columns, min(width, sizes.n), pack=True, depth=min(most, bundle.steps), rows=rows)


def _computed_tile(sizes: _Sizes) -> tuple[int, int]:
    """Return the most rows of a tile, for each of which a factor is computed once, and its vectors or lines."""
    sums, rows = (16, 8) if sizes.target.num_vector_registers >= 32 else (8, 4)
    return rows, next(width for width in (4, 2, 1) if width * row_groups(sizes.m, rows)[0] <= sums)


# --- short k -------------------------------------------------------------------------------------------------


def _is_short(sizes: _Sizes) -> bool:
    """Whether a product is small, or one of a batch whose packed rhs fits the stack."""
    c = sizes.contraction
    if sizes.depth > SHORT_DEPTH() or _lhs_spans_pages(sizes):
        return False
    small = sizes.m * sizes.depth + sizes.depth * sizes.n + sizes.m * sizes.n <= SMALL_BYTES() // sizes.bytes
    many = c.batches > 1 and sizes.depth * sizes.n * sizes.bytes <= RHS_BYTES()
    return small or many or _is_thin(sizes)


def _lhs_spans_pages(sizes: _Sizes) -> bool:
    """Whether lhs unpacked would touch too many cache lines and pages: contiguous along m, with a long k."""
    c = sizes.contraction
    return c.k.a != 1 and sizes.m > 1 and c.k.a * sizes.bytes * sizes.depth > FEW_PAGES_BYTES()


def _plan_short(sizes: _Sizes) -> ShortPlan:
    c = sizes.contraction
    size = sizes.m, sizes.n, sizes.lanes, sizes.target.num_vector_registers
    called = sums_by_calls(c, *size[2:])
    tile = choose_register_tile(*size, called=called)
    width = tile.vectors * sizes.lanes
    pack = c.n.b != 1 or _packing_pays(sizes)
    most = max(width, RHS_BYTES() // (max(1, sizes.depth) * sizes.bytes)) if pack else sizes.n
    columns = balanced(sizes.n, most, width)
    blocks = math.ceil(sizes.items / (c.batches * math.ceil(sizes.n / columns)))
    least = 8 if pack else 1
    return ShortPlan(tile, max(least, math.ceil(math.ceil(sizes.m / tile.rows) / blocks)), columns, pack, called)


def _packing_pays(sizes: _Sizes) -> bool:
    """Whether packing rhs, though contiguous along n, pays: many rows reuse it, and its stride suits caches badly."""
    c = sizes.contraction
    row = c.k.b * sizes.bytes
    large = sizes.depth * sizes.n * sizes.bytes > WORTH_PACKING_BYTES()
    return sizes.m >= WORTH_PACKING_ROWS() and sizes.depth > 16 and (row % 1024 == 0 or large)


# --- everything else -----------------------------------------------------------------------------------------


def _plan_packed(sizes: _Sizes) -> PackedPlan:
    """Plan B panels as deep as one running sum may be, a cache block of lhs in 3/8 of L2; all rows in one if near.

    Panels are less deep where sums take several blocks of k anyway, and partial ones stay in L2.
    """
    c, target = sizes.contraction, sizes.target
    tile = _packed_tile(sizes)
    width = tile.vectors * sizes.lanes
    limit = target.lhs_block // sizes.bytes
    most = LONGEST_RUNNING_SUM()
    if sizes.m <= limit // 192:
        most = min(most, limit // sizes.m)
    depth = balanced(c.k.extent, most, sizes.lanes * len(Bundle.of(c).offsets))
    rows = balanced(sizes.m, max(tile.rows, limit // depth // tile.rows * tile.rows), tile.rows)
    row_blocks = natural_blocks = math.ceil(sizes.m / rows)
    apart = min(target.num_threads, sizes.m // SPLIT_ROWS()) if c.b.number in c.kernel.lasting else 1
    if c.batches == 1 and max(row_blocks, apart) > 1:
        # A multiple of the threads; a block of lhs is then packed once for all columns.
        row_blocks = math.ceil(row_blocks / target.num_threads) * target.num_threads if row_blocks > 1 else apart
        rows = balanced(sizes.m, math.ceil(sizes.m / row_blocks), tile.rows)
        row_blocks = math.ceil(sizes.m / rows)
    blocks = math.ceil(sizes.items / (row_blocks * c.batches))
    # With few columns an item would mostly pack lhs: accept that only where there is no other parallelism.
    least = 8 if row_blocks * c.batches > 1 else 2
    columns = balanced(sizes.n, min(2048, max(least * width, math.ceil(sizes.n / blocks))), width)
    # From the shape alone, as the order of additions.
    if depth < c.k.extent and sizes.m * min(sizes.n, 2048) * sizes.bytes <= 2 * target.l2_bytes:
        near = min(NEAR_PANEL(), target.l1_bytes * 2 // 3) // (width * sizes.bytes)
        depth = balanced(c.k.extent, max(1, min(depth, near)), sizes.lanes * len(Bundle.of(c).offsets))
    parts = _parts_of_k(sizes, natural_blocks, depth, width)
    rhs_bytes = math.prod(axis.extent for axis in c.batch if axis.b) * sizes.depth * sizes.n * sizes.bytes
    own = max(1, target.group_bytes // (depth * sizes.bytes * width)) * width
    # A large rhs streams from memory, fastest in long pieces of its rows: where an item's own panels do not have them,
    # only a packing phase can load them, which writes rhs to memory once more.
    # A factor is read in narrower elements: its pieces take the time of the products, not of the memory.
    large = c.b.factor is None and sizes.depth * sizes.n * sizes.bytes > 2 * target.l2_bytes
    far = c.n.b == 1 and own * sizes.bytes < LONG_PIECE() and large
    alone = (row_blocks == 1 and c.b.number not in c.kernel.lasting and not far) or rhs_bytes > target.shared_bytes
    panels = FAR_PANELS() if far and row_blocks == 1 else PANELS()
    group = own if alone else 0
    return PackedPlan(tile, depth, rows, columns, group, panels, parts, _reads_rows(sizes, rows, columns, depth))


def _reads_rows(sizes: _Sizes, rows: int, columns: int, depth: int) -> bool:
    """Whether lhs is read as it lies, for few columns: contiguous along k, in rows that share no lines of L2."""
    c = sizes.contraction
    stored = not c.a.conversion and c.a.element == accumulator_type(c) and c.a.factor is None and c.b.factor is None
    if columns > READ_COLUMNS() or c.k.a != 1 or not stored:
        return False
    row, block = c.m.a * sizes.bytes, depth * sizes.bytes
    apart = L2_WAY // math.gcd(row, L2_WAY)  # rows that begin on lines of their own
    return 2 * rows * block <= min(sizes.target.l2_bytes, apart * max(block, LINE) * L2_WAYS)


def _packed_tile(sizes: _Sizes) -> RegisterTile:
    """Choose the tile that wastes the least work on columns and rows that are not there."""
    tiles = PACKED_TILES[32 if sizes.target.num_vector_registers >= 32 else 16]
    across = math.ceil(sizes.n / sizes.lanes)

    def work(vectors: int) -> float:
        rows, cost = tiles[vectors]
        return math.ceil(across / vectors) * vectors * math.ceil(sizes.m / rows) * rows * cost

    vectors = min(tiles, key=work)
    return RegisterTile(tiles[vectors][0], vectors)


def _parts_of_k(sizes: _Sizes, row_blocks: int, depth: int, width: int) -> int:
    """Choose split-K: for results too small to parallelize over, and to bound the rounding error.

    From the shape alone: the order of additions does not depend on the number of threads.
    """
    c = sizes.contraction
    natural = c.batches * row_blocks * math.ceil(sizes.n / (8 * width))
    outer = math.prod(axis.extent for axis in c.k_outer)
    blocks, sums = (math.ceil(c.k.extent / steps) * outer for steps in (depth, max(depth, LONGEST_RUNNING_SUM())))
    wanted = max(min(16 // natural, sums // 8), math.ceil(blocks / MOST_BLOCKS()))
    # Equal parts; a last part without blocks would leave its partial sums uninitialized.
    return math.ceil(blocks / math.ceil(blocks / wanted)) if wanted > 1 else 1
