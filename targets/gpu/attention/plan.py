"""Tiling of attention on tensor cores: queries per warp, warps per block, shared memory; and which attentions fit."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.codegen.loop_nest import Map
from stablexla.targets.codegen.match.attention import Attention
from stablexla.targets.gpu.attention.places import outer_strides
from stablexla.targets.gpu.chips import shared_limit
from stablexla.targets.gpu.contraction.mma_formats import FORMATS, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_plan import FRAGMENT_ROWS
from stablexla.targets.gpu.threads import WARP

KEYS = 64
"""Keys of a tile: their powers fill 128 bytes."""
STAGES = 2
MOST_EXTENT = 256
"""Largest head dimension, and width of the result, whose accumulators fit into registers."""


@dataclass(frozen=True)
class AttentionMmaPlan:
    """Tiling of one block: warps of 16 queries each, and their shared memory.

    Attributes:
        attention: the matched attention.
        format: MMA format of both products.
        warps: of a block.
    """

    attention: Attention
    format: MmaFormat
    warps: int

    @property
    def queries(self) -> int:
        """Queries of a block."""
        return self.warps * FRAGMENT_ROWS

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps * WARP

    @property
    def panels(self) -> tuple[int, int]:
        """Panels of 128 bytes per key, and per key's values."""
        depth = self.format.depth
        return -(-self.attention.depth // depth), -(-self.attention.width // depth)

    @property
    def stage(self) -> int:
        """Bytes of a pipeline stage: one tile of keys and of values."""
        return sum(self.panels) * KEYS * ROW_BYTES

    @property
    def first_stage(self) -> int:
        """Offset of the first stage: the bytes of the queries."""
        return self.panels[0] * self.queries * ROW_BYTES

    @property
    def shared(self) -> int:
        """Shared memory of a block in bytes."""
        return self.first_stage + STAGES * self.stage


def plan_attention_mma(attention: Attention, format_: MmaFormat, chip: str) -> AttentionMmaPlan | None:
    """Choose the plan with the most queries that fits into shared memory and fills all its warps, or None."""
    queries = attention.extent(attention.queries)
    plans = [AttentionMmaPlan(attention, format_, warps) for warps in (8, 4, 2, 1)]
    fitting = [p for p in plans if p.shared <= shared_limit(chip) and (p.warps == 1 or p.queries < 2 * queries)]
    return fitting[0] if fitting else None


def format_of(attention: Attention) -> MmaFormat | None:
    """Return the 16-bit MMA format of both products, where powers are rounded to it; else None."""
    factors = (attention.q, attention.k, attention.v)
    names = {str(f.operand.element) for f in factors}
    if names not in ({"bf16"}, {"f16"}) or str(attention.element) != "f32":
        return None
    if any([op.name for op in f.operand.conversion] != ["arith.extf"] for f in factors):
        return None
    (name,) = names
    return FORMATS[name] if _rounded_to(attention) == name else None


def _rounded_to(attention: Attention) -> str:
    """Return the type that powers are rounded to before they are widened, or ""."""
    node = attention.rows.weights.ref[0]
    if not isinstance(node, Map):
        return ""
    result = terminator_of(node.block).operands[0]
    if isinstance(result.owner, ir.Block) or result.owner.name != "arith.extf":
        return ""
    return str(result.owner.operands[0].type)


def rows_are_aligned(attention: Attention, format_: MmaFormat) -> bool:
    """Return whether all rows are whole copies of 16 bytes."""
    chunk = format_.chunk
    depth, width = attention.depth, attention.width
    for factor, extent in ((attention.q, depth), (attention.k, depth), (attention.v, width)):
        if factor.inner != 1 or extent % chunk or extent > MOST_EXTENT or any(s % chunk for s in outer_strides(factor)):
            return False
    return True
