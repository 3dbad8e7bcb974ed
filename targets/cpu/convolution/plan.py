"""Tiling of convolutions: register tile, blocks of the result that are an item, features accumulated at a time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from copy import copy
from dataclasses import replace

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.machine import ITEM_WORK, CpuTarget
from stablexla.targets.codegen.match.convolution import MatchedConvolution, WindowDimension
from stablexla.targets.codegen.match.epilogue import stores_vectors
from stablexla.targets.codegen.sizes import balanced, rounded_up
from stablexla.targets.cpu.contraction.amx import BLOCK
from stablexla.targets.cpu.contraction.register_tile import INLINE_EPILOGUE, RegisterTile
from stablexla.targets.cpu.convolution.micro_kernel import choose_pixel_tile
from stablexla.targets.cpu.convolution.units import ConvolutionUnits, plain_units, units_of

# Bytes on an item's stack: packed lhs under its windows, and staged sums.
LHS_BYTES = Gate("convolution.lhs-bytes", 160 << 10, eager=2048)
MOST_LHS_BYTES = Gate("convolution.most-lhs-bytes", 1 << 20, eager=8192)
STAGE_BYTES = Gate("convolution.stage-bytes", 96 << 10, eager=1024)
# The most outputs of an item along its last two dimensions: their offsets are in a table.
MOST_PIXELS = Gate("convolution.most-pixels", 8 << 10, eager=64)
# Bytes of a panel of packed weights, reused by each tile.
PANEL_BYTES = Gate("convolution.panel-bytes", 160 << 10, eager=1024)
# The most items of a convolution.
MOST_ITEMS = Gate("convolution.most-items", 16, eager=2)
# The least items of a convolution whose weights exceed a part of L2.
LEAST_ITEMS = Gate("convolution.least-items", 8, eager=2)
# Pixels of an item's tiles, as a percentage of its own: beyond that its output features are divided, not its rows.
MOST_PADDED = Gate("convolution.most-padded", 115, eager=100)
# About what a core loads from beyond L2 in a cycle.
BYTES_OF_CYCLE = 10
# The most output features whose lanes may be pixels: a tile's rows.
FEW_OUTPUTS = Gate("convolution.few-outputs", 8, eager=1)
# The most pairs of integer features that are multiplied one by one for that, where an instruction takes groups.
FEW_PRODUCTS = Gate("convolution.few-products", 32, eager=1)
# The longest window row that is unrolled.
UNROLLED = Gate("convolution.unrolled-taps", 8, eager=1)
# The most channels of an item: whole cache lines, and few enough for whole rows of an image.
CHANNELS = Gate("convolution.channels", 64, eager=1)


@dataclass(frozen=True)
class ConvolutionPlan:
    """Tiling of a convolution.

    Attributes:
        tile: the register tile: adjacent outputs along the last spatial dimension, and vectors of output features.
        features: input features accumulated in registers.
        rows: rounds of the last but one spatial dimension in an item.
        rounds: rounds of the last one.
        columns: output features, a multiple of the tile's.
        staged: whether sums go to a stage buffer first, as partial sums or for a change of layout.
        own_weights: whether an item packs its weights, since no other needs them; else all are packed before.
        images: images of an item: they share cached weights.
        across: vectors of a tile whose lanes are pixels of a row, for few output features; 0 where they are features.
        depth: split-K: window elements of an item along the last but one spatial dimension; 0 for all of them.
        channels: depthwise: groups of an item, of one output feature each; a vector then holds several of them.
        in_place: depthwise: lhs is read as it lies.
    """

    tile: RegisterTile
    features: int
    rows: int
    rounds: int
    columns: int
    staged: bool
    own_weights: bool = False
    channels: int = 0
    images: int = 1
    depth: int = 0
    across: int = 0
    in_place: bool = False

    @property
    def elements(self) -> int:
        """Values that are packed for each element of lhs, of channels."""
        return self.columns * self.features

    def items(self, sizes: ConvolutionSizes) -> list[int]:
        """Return the numbers of items: parts of the window, batch, groups, planes, row phases, blocks of the others."""
        c, height = sizes.convolved, sizes.height
        return [
            self.parts(sizes),
            c.batch.extent // self.images,
            1 if self.channels else c.group.extent,
            *(d.outputs for d in sizes.planes),
            len(height.phases) if height else 1,
            math.ceil(height.rounds / self.rows) if height else 1,
            math.ceil(c.last.rounds / self.rounds),
            math.ceil(c.outputs * (c.group.extent if self.channels else 1) / self.columns),
        ]

    def parts(self, sizes: ConvolutionSizes) -> int:
        """Return the parts of the window, whose partial sums are added up at the end."""
        return math.ceil(sizes.convolved.outer[-1].taps / self.depth) if self.depth else 1


class ConvolutionSizes:
    """The cost model's figures for a plan, and the shapes of its buffers."""

    def __init__(self, convolved: MatchedConvolution, target: CpuTarget, units: ConvolutionUnits) -> None:
        self.convolved, self.target, self.units = convolved, target, units
        self.width = convolved.last
        *planes, height = convolved.outer or (None,)
        self.height: WindowDimension | None = height
        self.planes = tuple(d for d in planes if d is not None)
        self.plane_taps = math.prod(d.taps for d in self.planes)
        self.bytes, self.sum_bytes = units.bytes, cg.bits_of(units.sums) // 8
        self.lanes = max(1, target.vector_bits // 8 // self.sum_bytes)
        self.weight_bytes = convolved.window * convolved.inputs.extent * convolved.outputs * self.bytes

    @property
    def products_of_cycle(self) -> int:
        """Multiplications that a core does at its best."""
        product = self.units.product
        return 2 * self.lanes * product.group * (8 if product.is_tiles else 1)

    def of_part(self, depth: int) -> ConvolutionSizes:
        """Return the sizes with at most `depth` elements of the window along its last but one dimension."""
        sizes, d = copy(self), self.height
        if d is not None and depth:
            sizes.height = replace(d, phases=tuple(replace(p, count=min(p.count, depth)) for p in d.phases))
        return sizes

    @property
    def all_rows(self) -> int:
        """Rounds of the last but one spatial dimension."""
        return 1 if self.height is None else self.height.rounds

    @property
    def others(self) -> int:
        """Items for each block of rows."""
        c = self.convolved
        phases = 1 if self.height is None else len(self.height.phases)
        return c.batch.extent * c.group.extent * math.prod(d.outputs for d in self.planes) * phases

    def heights(self, rows: int) -> int:
        """Return the rows of lhs that `rows` rounds of a phase need."""
        d = self.height
        return 1 if d is None else ((rows - 1) * d.stride + (d.taps - 1) * d.tap_stride) // d.step + 1

    def packed(self, features: int, rows: int, rounds: int) -> int:
        """Return the elements of the part of lhs that an item packs."""
        return self.plane_taps * self.heights(rows) * self.width.reach(rounds) * self.units.slots(features)


def reads_in_place(sizes: ConvolutionSizes, features: int) -> bool:
    """Whether lhs is read unpacked: no conversion, contiguous features, no padding."""
    convolved, units = sizes.convolved, sizes.units
    as_it_is = units.stays(convolved.contraction.a) and units.slots(features) == features
    beside = convolved.inputs.a == 1 or features == 1
    return as_it_is and beside and all(_stays(d) for d in (*convolved.outer, convolved.last))


def _stays(d: WindowDimension) -> bool:
    """Whether the windows of all rounds lie inside of lhs."""
    phases = [p for p in d.phases if p.count]
    last = max((p.offset + (p.count - 1) * d.tap_stride for p in phases), default=0)
    return all(p.offset >= 0 for p in phases) and (d.rounds - 1) * d.stride + last < d.size


def plan_convolution(
    convolved: MatchedConvolution, target: CpuTarget
) -> tuple[ConvolutionSizes, ConvolutionPlan] | None:
    """Plan a convolution, with the sizes planned from; None where an item would need too much memory."""
    sizes = ConvolutionSizes(convolved, target, plain_units(convolved))
    plan = _plan_of_channels(sizes) if convolved.outputs == 1 else None
    if plan is None:
        # The lanes of few output features are pixels, which no instruction on groups of features has. Vectors of 16
        # bits are multiplied in half the time of 32; there are none of 8.
        plain, units = plain_units(convolved, 16), units_of(convolved, target)
        few, is_float = convolved.outputs <= FEW_OUTPUTS(), cg.is_float(units.sums)
        is_quick = is_float or units.product.is_plain or cg.bits_of(plain.sums) == 16
        if few and (is_quick or convolved.inputs.extent * convolved.outputs <= FEW_PRODUCTS()):
            sizes = ConvolutionSizes(convolved, target, plain)
            plan = _plan_across(sizes)
        if plan is None:
            if not (few and is_float):
                sizes = ConvolutionSizes(convolved, target, units)
            plan = _plan_of_features(sizes)
    return None if plan is None else (sizes, plan)


def _plan_of_features(sizes: ConvolutionSizes) -> ConvolutionPlan | None:
    """Plan the micro-kernel of broadcast elements of lhs by vectors of weights."""
    c, target = sizes.convolved, sizes.target
    tile = _tile_of_features(sizes)
    panel = tile.vectors * sizes.lanes
    features = _part(sizes, PANEL_BYTES() // (c.taps * panel * sizes.bytes))
    rounds = _rounds(sizes, tile, features)
    while sizes.packed(features, 1, rounds) * sizes.bytes > LHS_BYTES():
        smaller = _part(sizes, features - 1)
        if smaller >= features:
            break
        features = smaller
    if sizes.packed(features, 1, rounds) * sizes.bytes > MOST_LHS_BYTES():
        return None
    staged = features < c.inputs.extent or len(c.last.phases) > 1 or not stores_vectors(c.contraction)
    whole = ConvolutionPlan(tile, features, sizes.all_rows, rounds, panel, staged, own_weights=True)
    parts = _in_parts(sizes, replace(whole, columns=rounded_up(c.outputs, panel), own_weights=False))
    if parts is not None:
        return parts
    if sizes.weight_bytes > target.l2_bytes // 2:
        large = _plan_of_large_weights(sizes, whole)
        if large is not None:
            return large
    columns = rounded_up(c.outputs, panel)
    if staged:
        most = STAGE_BYTES() // (rounds * len(sizes.width.phases) * sizes.sum_bytes)
        columns = balanced(columns, max(panel, most), panel)
    rows = _most_rows(sizes, replace(whole, columns=columns))
    blocks = math.ceil(_wanted(sizes) / (sizes.others * math.ceil(c.outputs / columns)))
    plan = ConvolutionPlan(tile, features, _in_blocks(sizes.all_rows, rows, blocks), rounds, columns, staged)
    if 100 * _padded(plan) <= MOST_PADDED():
        return plan
    of_columns = _plan_of_large_weights(sizes, whole)
    return of_columns if of_columns is not None and _padded(of_columns) < _padded(plan) else plan


def _padded(plan: ConvolutionPlan) -> float:
    """Return the pixels that an item's tiles have room for, over those that it has."""
    pixels = plan.images * plan.rows * plan.rounds
    return rounded_up(pixels, plan.tile.rows) / pixels


def _tile_of_features(sizes: ConvolutionSizes) -> RegisterTile:
    if sizes.units.product.is_tiles:
        return RegisterTile(BLOCK, max(1, BLOCK // sizes.lanes))
    return choose_pixel_tile(sizes.convolved.outputs, sizes.lanes, sizes.target.num_vector_registers)


def _plan_across(sizes: ConvolutionSizes) -> ConvolutionPlan | None:
    """Plan the micro-kernel of broadcast weights by vectors of pixels, for output features that fill few lanes.

    Pixels of a vector are adjacent in lhs. Its features lie in lines then, which costs a transpose of lhs.
    """
    c, w, lanes = sizes.convolved, sizes.width, sizes.lanes
    features, registers = c.inputs.extent, sizes.target.num_vector_registers
    vectors = math.ceil(w.rounds / lanes)
    if w.stride != 1:
        return None
    # Twice as many lanes in use have to pay for the transpose, of elements that are used several times.
    if 2 * c.outputs * vectors > w.rounds or (c.taps == 1 and reads_in_place(sizes, features)):
        return None
    width = min(vectors, max(1, registers * 3 // 4 // c.outputs), registers // 4)
    width = math.ceil(vectors / math.ceil(vectors / width))
    step, limit = width * lanes, min(MOST_LHS_BYTES(), sizes.target.l2_bytes // 2)
    staged = len(w.phases) > 1 or not stores_vectors(c.contraction.swapped())

    def fits(rows: int, rounds: int) -> bool:
        sums = rounds * len(w.phases) * (lanes if staged else c.outputs) * sizes.sum_bytes
        return sizes.packed(features, rows, rounds) * sizes.bytes <= limit and sums <= STAGE_BYTES()

    # Whole vectors of pixels are read, also where a row has fewer.
    blocks = range(math.ceil(w.rounds / step), 0, -1)
    padded = next((balanced(w.rounds, n * step, step) for n in blocks if fits(1, n * step)), 0)
    if not padded:
        return None
    most = next(rows for rows in range(sizes.all_rows, 0, -1) if rows == 1 or fits(rows, padded))
    others = sizes.others * math.ceil(w.rounds / padded)
    rows = _in_blocks(sizes.all_rows, most, math.ceil(_wanted(sizes) / others))
    tile, rounds = RegisterTile(c.outputs, 1), min(padded, w.rounds)
    return ConvolutionPlan(tile, features, rows, rounds, lanes, staged, across=width)


def _in_parts(sizes: ConvolutionSizes, plan: ConvolutionPlan) -> ConvolutionPlan | None:
    """Split the window, as gradients of weights have it: larger than the result, and beside its weights few pixels.

    An item then has all pixels, and the weights of its part stay in L2; neither is packed twice.
    """
    c, d = sizes.convolved, sizes.height
    if plan.staged or d is None or len(d.phases) > 1 or plan.rounds < c.last.rounds:
        return None
    if sizes.weight_bytes <= sizes.target.l2_bytes or d.taps * d.tap_stride < 4 * d.rounds * d.stride:
        return None
    others = c.group.extent * math.prod(plane.outputs for plane in sizes.planes)
    parts = math.ceil(min(_wanted(sizes), LEAST_ITEMS()) / others)
    depth = math.ceil(d.taps / parts)
    image = sizes.of_part(depth).packed(plan.features, d.rounds, plan.rounds) * sizes.bytes
    most = min(LHS_BYTES() // image, MOST_PIXELS() // (d.rounds * plan.rounds))
    images = next((n for n in range(min(most, c.batch.extent), 0, -1) if c.batch.extent % n == 0), 0)
    return replace(plan, depth=depth, images=images) if parts > 1 and images else None


def _plan_of_channels(sizes: ConvolutionSizes) -> ConvolutionPlan | None:
    """Plan a depthwise convolution: vectors of independent channels."""
    c = sizes.convolved
    channels = c.group.extent
    if 2 * channels < sizes.lanes or c.inputs.extent > 8:
        return None
    tile = RegisterTile(_rows_of_channels(sizes), 1)
    if _reads_channels_in_place(sizes):
        return _plan_in_place(sizes, tile)
    # Equal blocks, so that the number of channels in one is a constant, a multiple of the vector width.
    blocks = [n for n in range(sizes.lanes, channels, sizes.lanes) if channels % n == 0]
    fitting = [n for n in [*blocks, channels] if n <= max(sizes.lanes, CHANNELS())] or [channels]
    columns = rounded_up(fitting[-1], sizes.lanes)
    rounds = _rounds(sizes, tile, columns * c.inputs.extent)
    plan = ConvolutionPlan(
        tile, c.inputs.extent, 1, rounds, columns, _is_staged(c, c.inputs.extent), channels=fitting[-1]
    )
    if sizes.packed(plan.elements, 1, rounds) * sizes.bytes > MOST_LHS_BYTES():
        return None
    others = sizes.others // channels * math.ceil(channels / columns)
    rows = _in_blocks(sizes.all_rows, _most_rows(sizes, plan), math.ceil(_wanted(sizes) / others))
    return replace(plan, rows=rows)


def _plan_in_place(sizes: ConvolutionSizes, tile: RegisterTile) -> ConvolutionPlan:
    """Plan items of whole rows, with some of the channels where there are few rows."""
    channels, images = sizes.convolved.group.extent, sizes.convolved.batch.extent
    # Sums of few rows would wait for each other.
    few = 4 * tile.rows <= sizes.target.num_vector_registers and channels >= 2 * sizes.lanes
    tile = replace(tile, vectors=2 if few else 1)
    rows = _in_blocks(sizes.all_rows, sizes.all_rows, math.ceil(MOST_ITEMS() / images))
    blocks = max(1, min(MOST_ITEMS() // (images * math.ceil(sizes.all_rows / rows)), channels // CHANNELS()))
    columns = balanced(channels, math.ceil(channels / blocks), tile.vectors * sizes.lanes)
    rounds, some = sizes.width.rounds, min(columns, channels)
    return ConvolutionPlan(tile, 1, rows, rounds, columns, staged=False, channels=some, in_place=True)


def _reads_channels_in_place(sizes: ConvolutionSizes) -> bool:
    """Whether the pixels of an image are vectors of channels in memory, and so are those of the result."""
    c = sizes.convolved
    plain = c.inputs.extent == 1 and c.group.a == 1 and sizes.units.stays(c.contraction.a) and not sizes.planes
    whole = all(len(d.phases) == 1 for d in (*c.outer, c.last)) and c.last.taps <= UNROLLED()
    return plain and whole and stores_vectors(c.contraction) and c.group.extent >= sizes.lanes


def _rows_of_channels(sizes: ConvolutionSizes) -> int:
    """Choose a tile's rows: accumulators, and all elements of lhs under a window's row, stay in registers.

    The others are spilled and reloaded for each element of the window: 14 rows took 1.4 times as long.
    """
    width = sizes.width
    most = max(4, (sizes.target.num_vector_registers - width.taps) // 2)
    return math.ceil(width.rounds / math.ceil(width.rounds / most))


def _is_staged(convolved: MatchedConvolution, features: int) -> bool:
    c = convolved.contraction
    in_parts = features < convolved.inputs.extent
    return in_parts or len(convolved.last.phases) > 1 or c.n.c != 1 or c.epilogue_size > INLINE_EPILOGUE


def _plan_of_large_weights(sizes: ConvolutionSizes, whole: ConvolutionPlan) -> ConvolutionPlan | None:
    """Choose an item's images, rows and output features by the bytes that come from beyond L2, and by empty tiles.

    Weights don't stay in L2: each item reads those of its features for all of its pixels, and packs lhs under these.
    """
    c, w, panel = sizes.convolved, sizes.width, whole.tile.vectors * sizes.lanes
    panels, wanted = -(-c.outputs // panel), _wanted(sizes)
    others = sizes.others // c.batch.extent * math.ceil(w.rounds / whole.rounds)
    weights_fit = c.window * whole.features * panel * sizes.bytes <= 2 * PANEL_BYTES()
    in_place = reads_in_place(sizes, whole.features)
    of_product = BYTES_OF_CYCLE / sizes.products_of_cycle
    best, least_cost = None, math.inf
    for images, rows in _parts_of_batch(sizes, several=others == c.group.extent):
        pixels = images * rows * whole.rounds
        packed = images * sizes.packed(whole.features, rows, whole.rounds) * sizes.bytes
        near = pixels * whole.features * sizes.bytes <= sizes.target.l2_bytes if in_place else packed <= LHS_BYTES()
        sums = pixels * len(w.phases) * sizes.sum_bytes if whole.staged else 0
        # What share the weights' features, and how many parts those then have.
        items = c.batch.extent // images * others * math.ceil(sizes.all_rows / rows)
        most = STAGE_BYTES() // (sums * panel) if sums else panels
        width = min(most, max(1, panels * items // wanted))
        if not near or not width or pixels > MOST_PIXELS():
            continue
        parts = math.ceil(panels / width)
        lhs = 0 if in_place else parts * packed * (c.inputs.extent // whole.features)
        padding = rounded_up(pixels, whole.tile.rows) / pixels
        cost = items * (sizes.weight_bytes + lhs) + work_of(c) * padding * of_product
        if items * parts >= min(wanted, LEAST_ITEMS()) and cost < least_cost:
            own, columns = items == c.group.extent and weights_fit, min(panels, width) * panel
            best = replace(whole, images=images, rows=rows, columns=columns, own_weights=own)
            least_cost = cost
    return best


def _parts_of_batch(sizes: ConvolutionSizes, *, several: bool) -> Iterator[tuple[int, int]]:
    """Yield images and rows that an item may have: `several` whole images, or a part of one."""
    batch, rows = sizes.convolved.batch.extent, sizes.all_rows
    if several:
        yield from ((images, rows) for images in range(batch, 1, -1) if batch % images == 0)
    yield from ((1, some) for some in dict.fromkeys(math.ceil(rows / blocks) for blocks in range(1, rows + 1)))


def _rounds(sizes: ConvolutionSizes, tile: RegisterTile, features: int) -> int:
    """Return the rounds of the last dimension in an item: all if a row of lhs and its sums fit, else equal blocks."""
    width = sizes.width
    whole = width.rounds if len(width.phases) == 1 else rounded_up(width.rounds, tile.rows)
    unit = math.lcm(tile.rows, sizes.lanes)
    rounds, blocks = whole, 1
    sums = len(width.phases) * tile.vectors * sizes.lanes * sizes.sum_bytes

    def fits() -> bool:
        bytes_ = sizes.packed(features, 1, rounds) * sizes.bytes
        return bytes_ <= LHS_BYTES() and rounds * sums <= STAGE_BYTES() and rounds <= MOST_PIXELS()

    while not fits() and rounds > unit:
        blocks += 1
        rounds = min(rounds, rounded_up(math.ceil(whole / blocks), unit))
    return rounds


def _most_rows(sizes: ConvolutionSizes, plan: ConvolutionPlan) -> int:
    """Return how many rows fit an item's buffers."""
    features = plan.elements if plan.channels else plan.features

    def bytes_of(rows: int) -> int:
        return sizes.packed(features, rows, plan.rounds) * sizes.bytes

    rows = bisect_right(range(1, sizes.all_rows + 1), LHS_BYTES(), key=bytes_of)
    rows = max(1, min(rows, MOST_PIXELS() // plan.rounds))
    if plan.staged:
        row = plan.rounds * len(sizes.width.phases) * plan.columns * sizes.sum_bytes
        rows = max(1, min(rows, STAGE_BYTES() // row))
    return rows


def _wanted(sizes: ConvolutionSizes) -> int:
    """Return the work items wanted for load balance, but no smaller than is worth the call.

    It follows from the shape alone: the order of additions does not depend on the number of threads.
    """
    return max(1, min(MOST_ITEMS(), work_of(sizes.convolved) // ITEM_WORK()))


def work_of(c: MatchedConvolution) -> int:
    """Return the number of multiplications."""
    return c.contraction.batches * c.last.outputs * c.group.extent * c.outputs * c.inputs.extent * c.taps


def _in_blocks(extent: int, most: int, wanted: int) -> int:
    """Return the size of equal blocks of at most `most`, at least `wanted` of them where that is possible."""
    blocks = max(math.ceil(extent / most), min(extent, wanted))
    return math.ceil(extent / blocks)


def _part(sizes: ConvolutionSizes, most: int) -> int:
    """Return the largest divisor of the input features, at most `most`, that splits no step; else all of them."""
    extent, step = sizes.convolved.inputs.extent, sizes.units.step
    whole = (d for d in range(max(1, min(extent, most)), 0, -1) if extent % d == 0 and d % step == 0)
    return next(whole, extent)
