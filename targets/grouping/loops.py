"""The reader of a linalg.generic's loops: extents, which of them reduce, indexing maps, and strides of each operand."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.contexts import kept_with_contexts
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major


@dataclass(frozen=True)
class Loops:
    """The loops of a linalg.generic: extents, which of them reduce, and the indexing map of each operand.

    `dims` lists for each operand the loops that alone index a dimension of it, in the order of its dimensions.
    """

    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    maps: tuple[ir.AffineMap, ...]
    num_inputs: int
    dims: tuple[tuple[int, ...], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether a single loop indexes each dimension of each operand."""
        return all(len(dims) == len(m.results) for dims, m in zip(self.dims, self.maps, strict=True))

    @property
    def kept(self) -> tuple[int, ...]:
        """Extents of the loops that do not reduce."""
        return tuple(e for e, r in zip(self.extents, self.reduced, strict=True) if not r)

    @property
    def identity(self) -> ir.AffineMap:
        """The map of an operand whose dimensions are the loops, in order."""
        return ir.AffineMap.get_identity(len(self.extents), self.maps[0].context)

    @property
    def in_order(self) -> bool:
        """Whether all outputs are stored in the order of the loops."""
        return all(m == self.identity for m in self.maps[self.num_inputs :])


def is_generic(op: ir.Operation) -> bool:
    return bool(op.name == "linalg.generic")


def loops_of(op: ir.Operation) -> Loops:
    """Return the loops of a linalg.generic."""
    attributes = op.attributes
    read = _read(attributes["indexing_maps"], attributes["iterator_types"])
    return Loops(_extents(op, read.alone, len(read.reduced)), read.reduced, read.maps, num_inputs(op), read.dims)


@dataclass(frozen=True)
class _Read:
    """Parsed attributes of a linalg.generic; `alone`: each operand's dimensions indexed by a single loop, with it."""

    maps: tuple[ir.AffineMap, ...]
    reduced: tuple[bool, ...]
    alone: tuple[tuple[tuple[int, int], ...], ...]
    dims: tuple[tuple[int, ...], ...]


def _read(indexing_maps: ir.Attribute, iterator_types: ir.Attribute) -> _Read:
    """Parse both attributes, memoized: parsing takes 50 times as long as the lookup, as it prints and splits them."""
    known = kept_with_contexts("loops")
    found: _Read | None = known.get((indexing_maps, iterator_types))
    if found is None:
        maps = tuple(ir.AffineMapAttr(m).value for m in indexing_maps)
        alone = tuple(
            tuple((k, e.position) for k, e in enumerate(m.results) if isinstance(e, ir.AffineDimExpr)) for m in maps
        )
        dims = tuple(tuple(loop for _, loop in places) for places in alone)
        found = _Read(maps, tuple("reduction" in str(k) for k in iterator_types), alone, dims)
        known[indexing_maps, iterator_types] = found
    return found


def num_inputs(op: ir.Operation) -> int:
    """Return how many operands of a linalg.generic are inputs; the others are initial values of its outputs."""
    return len(op.operands) - len(op.results)


def inputs_of(op: ir.Operation) -> list[ir.Value]:
    """Return the inputs of a linalg.generic."""
    return list(op.operands)[: num_inputs(op)]


def _extents(op: ir.Operation, alone: Sequence[Sequence[tuple[int, int]]], rank: int) -> tuple[int, ...]:
    """Return the loops' extents: that of any dimension which the loop alone indexes."""
    extents: list[int | None] = [None] * rank
    for operand, places in zip(op.operands, alone, strict=True):
        if places:
            shape = operand.type.shape
            for dimension, loop in places:
                extents[loop] = shape[dimension]
    assert None not in extents, "a loop that indexes nothing alone"
    return tuple(e for e in extents if e is not None)


def strides_of(op: ir.Operation) -> list[tuple[int, ...]] | None:
    """Return the stride of each loop in each operand; None if an index is more than a single loop."""
    maps = loops_of(op).maps
    found = [map_strides(m, v.type.shape if len(m.results) else []) for v, m in zip(op.operands, maps, strict=True)]
    known = [strides for strides in found if strides is not None]
    return known if len(known) == len(found) else None


def map_strides(map_: ir.AffineMap, shape: Sequence[int]) -> tuple[int, ...] | None:
    """Return the stride of each loop in an array of `shape` read through `map_`; None for other maps."""
    strides = [0] * map_.n_dims
    for expression, step in zip(map_.results, row_major(shape), strict=True):
        if isinstance(expression, ir.AffineDimExpr):
            strides[expression.position] += step
        elif not isinstance(expression, ir.AffineConstantExpr) or expression.value != 0:
            return None
    return tuple(strides)


def reads_outputs(op: ir.Operation) -> bool:
    """Return whether a body uses the old elements of its outputs, as a reduction does."""
    arguments = list(op.regions[0].blocks[0].arguments)
    return any(True for argument in arguments[num_inputs(op) :] for _ in argument.uses)
