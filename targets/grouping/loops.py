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
    read, operands = _read(op), op.operands
    extents = [0] * len(read.reduced)
    for number, places in read.cover:
        shape = operands[number].type.shape
        for dimension, loop in places:
            extents[loop] = shape[dimension]
    return Loops(tuple(extents), read.reduced, read.maps, len(operands) - len(op.results), read.dims)


def reduces(op: ir.Operation) -> bool:
    """Return whether any loop of a linalg.generic reduces."""
    return True in _read(op).reduced


@dataclass(frozen=True)
class _Read:
    """Parsed attributes of a linalg.generic.

    Attributes:
        cover: operands that have all loops between them, each with dimensions and the loops that alone index these.
    """

    maps: tuple[ir.AffineMap, ...]
    reduced: tuple[bool, ...]
    cover: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    dims: tuple[tuple[int, ...], ...]


def _read(op: ir.Operation) -> _Read:
    """Parse both attributes, memoized: parsing takes 50 times as long as the lookup, as it prints and splits them."""
    attributes = op.attributes
    key = attributes["indexing_maps"], attributes["iterator_types"]
    known = kept_with_contexts("loops")
    found: _Read | None = known.get(key)
    if found is None:
        maps = tuple(ir.AffineMapAttr(m).value for m in key[0])
        alone = [[(k, e.position) for k, e in enumerate(m.results) if isinstance(e, ir.AffineDimExpr)] for m in maps]
        dims = tuple(tuple(loop for _, loop in places) for places in alone)
        reduced = tuple("reduction" in str(k) for k in key[1])
        found = known[key] = _Read(maps, reduced, _cover(alone, len(reduced)), dims)
    return found


def _cover(
    alone: Sequence[Sequence[tuple[int, int]]], rank: int
) -> tuple[tuple[int, tuple[tuple[int, int], ...]], ...]:
    """Return operands that have all loops between them, the last first: most often a result has them all."""
    missing, found = set(range(rank)), []
    for number in reversed(range(len(alone))):
        places = tuple((dimension, loop) for dimension, loop in alone[number] if loop in missing)
        if places:
            found.append((number, places))
            missing -= {loop for _, loop in places}
    assert not missing, "a loop that indexes nothing alone"
    return tuple(found)


def num_inputs(op: ir.Operation) -> int:
    """Return how many operands of a linalg.generic are inputs; the others are initial values of its outputs."""
    return len(op.operands) - len(op.results)


def inputs_of(op: ir.Operation) -> list[ir.Value]:
    """Return the inputs of a linalg.generic."""
    return list(op.operands)[: num_inputs(op)]


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
