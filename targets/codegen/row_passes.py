"""Row passes: schedule of a kernel with reductions over rows, and the values that later passes reuse.

Emits no code; the emitters of rows and of reductions read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import prod

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Kernel
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Map, Node, Reduction, Ref, Store, operands_of, reachable
from stablexla.targets.codegen.reductions import VectorReduction, match_reduction, split_by_reduction
from stablexla.targets.codegen.refusals import COMPLEX, Refusal, refuse
from stablexla.targets.codegen.scope import LoopScope

# Values of at least so many instructions are stored for later row passes, in thread-local memory, not rematerialized.
EXPENSIVE = 8


@dataclass
class RowPass:
    """A row pass, one sweep over a row: completed reductions, stored results, values saved and reused."""

    foldings: list[VectorReduction] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    saved: list[Map] = field(default_factory=list)
    reused: list[Map] = field(default_factory=list)
    loads: set[Load] = field(default_factory=set)
    cost: int = 0

    @property
    def refs(self) -> list[Ref]:
        """The values evaluated for each element."""
        return [ref for f in self.foldings for ref in f.fold.operands] + [s.ref for s in self.stores]

    @property
    def types(self) -> list[ir.Type]:
        """Element types of the accumulators."""
        return [t for folding in self.foldings for t in folding.types]

    def split(self, totals: list[Value]) -> list[tuple[VectorReduction, list[Value]]]:
        """Split the accumulators by reduction."""
        return list(zip(self.foldings, split_by_reduction(self.foldings, totals), strict=True))

    def start(self, scope: LoopScope, lanes: int, offset: int = 0) -> list[Value]:
        """Return accumulators that hold the identity, see `VectorReduction.start`."""
        return [v for folding in self.foldings for v in folding.start(scope, lanes, offset)]

    def join(self, a: list[Value], b: list[Value]) -> list[Value]:
        """Combine two sets of accumulators, in this order."""
        pairs = zip(self.split(a), split_by_reduction(self.foldings, b), strict=True)
        return [v for (folding, x), y in pairs for v in folding.join(x, y)]

    def across(self, scope: LoopScope, totals: list[Value]) -> list[Value]:
        """Reduce the lanes horizontally to scalar accumulators."""
        return [v for folding, part in self.split(totals) for v in folding.across(scope, part)]

    def finish(self, scope: LoopScope, totals: list[Value]) -> None:
        """Define the reductions' results in a scope, from the accumulators."""
        for folding, part in self.split(totals):
            scope.put(folding.fold, folding.finish(scope, part))


@dataclass
class RowPasses:
    """The row passes, and the stores once for each row."""

    nest: LoopNest
    columns: frozenset[int]
    passes: list[RowPass]
    row_stores: list[Store]

    @property
    def rows(self) -> tuple[int, ...]:
        """The row loops."""
        return tuple(d for d in range(len(self.nest.extents)) if d not in self.columns)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return prod(self.nest.extents[d] for d in self.columns)

    @property
    def inner(self) -> int:
        """The innermost loop, which is vectorized."""
        return len(self.nest.extents) - 1

    @property
    def cost(self) -> int:
        """Approximate vector instructions of all passes for each vector."""
        return sum(p.cost for p in self.passes)


_DIFFERENT = Refusal("its reductions are along different dimensions", "reductions along the same dimensions")


def schedule_rows(nest: LoopNest) -> RowPasses | None:
    """Schedule a nest with reductions into row passes, or return None if they reduce over different loops."""
    folds = nest.folds
    if not folds:
        return None
    if any(fold.reduced != folds[0].reduced for fold in folds):
        refuse(_DIFFERENT)
        return None
    columns = folds[0].reduced
    everything = frozenset(range(len(nest.extents)))
    full = [s for s in nest.stores if s.domain == everything]
    by_row = [s for s in nest.stores if s.domain == everything - columns]
    if len(full) + len(by_row) != len(nest.stores) or any(fold.domain != everything for fold in folds):
        return None
    inner = len(nest.extents) - 1
    if inner not in columns and any(inner not in fold.deps for fold in folds):
        return None  # a reduction uniform across lanes
    stages = _stages(nest)
    passes = [RowPass() for _ in range(1 + max(stages[n] for n in nest.nodes))]
    for fold in folds:
        passes[stages[fold] - 1].foldings.append(match_reduction(fold))
    for place in full:
        passes[stages[place.ref[0]]].stores.append(place)
    if any(isinstance(t, ir.ComplexType) for p in passes for folding in p.foldings for t in folding.types):
        refuse(COMPLEX)  # a body that is not understood, whose accumulators would be complex numbers in lanes
        return None
    chain = RowPasses(nest, columns, [p for p in passes if p.foldings or p.stores], by_row)
    _note_costs(chain)
    return chain


def _stages(nest: LoopNest) -> dict[Node, int]:
    """Return for each value the number of passes completed before it is known for the row, or can be evaluated."""
    stages: dict[Node, int] = {}
    for node in nest.nodes:
        before = max((stages[operand] for operand, _ in operands_of(node)), default=0)
        stages[node] = before + 1 if isinstance(node, Reduction) else before
    return stages


def _note_costs(chain: RowPasses) -> None:
    """Determine which values each pass evaluates, and which expensive ones it reuses from an earlier pass."""
    first: dict[Map, RowPass] = {}
    for now in chain.passes:
        waiting, seen = [node for node, _ in now.refs], set()
        now.cost = sum(f.fold.cost for f in now.foldings)
        while waiting:
            node = waiting.pop()
            if node in seen or not node.deps & chain.columns:
                continue
            seen.add(node)
            if isinstance(node, Load):
                now.loads.add(node)
                now.cost += 1
            elif isinstance(node, Map) and node in first and _tree_cost(node, chain.columns) >= EXPENSIVE:
                now.reused.append(node)
                now.cost += 1
                if node not in first[node].saved:
                    first[node].saved.append(node)
            elif isinstance(node, Map):
                first.setdefault(node, now)
                now.cost += node.cost
                waiting += [operand for operand, _ in node.operands]


def _tree_cost(node: Map, columns: frozenset[int]) -> int:
    """Return the cost of rematerializing a value from memory."""
    nodes = [n for n in reachable([(node, 0)]) if n.deps & columns]
    return sum(n.cost if isinstance(n, Map) else 1 for n in nodes)


def rematerialize_all(chain: RowPasses) -> None:
    """Let every pass rematerialize everything."""
    for one in chain.passes:
        one.loads = {n for n in reachable(one.refs) if isinstance(n, Load) and n.deps & chain.columns}
        one.saved, one.reused = [], []


def in_place_pairs(kernel: Kernel, chain: RowPasses) -> tuple[tuple[int, int], ...]:
    """Return the results that may overwrite an input in place: loaded at the same index, and by no later pass."""
    pairs = []
    for number, value in enumerate(kernel.inputs):
        reads = [node for node in chain.nest.loads if node.buffer == number]
        for place in chain.nest.stores:
            same = all(node.strides == place.strides and node.stays for node in reads)
            if reads and same and value.type == kernel.results[place.result].type and _last_reader(chain, reads, place):
                pairs.append((place.result, number))
    return tuple(pairs)


def _last_reader(chain: RowPasses, reads: Sequence[Load], place: Store) -> bool:
    """Whether no load follows the pass that stores a result."""
    if place in chain.row_stores:
        return True
    writer = next(i for i, p in enumerate(chain.passes) if place in p.stores)
    return not any(node in p.loads for p in chain.passes[writer + 1 :] for node in reads)
