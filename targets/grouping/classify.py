"""Classification of tensor operations for grouping: element-wise map, reduction, contraction, transpose, ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import mlir.ir as ir

from stablexla.dialects.contexts import kept_with_contexts
from stablexla.lowering.rules.convolution import CONVOLUTION
from stablexla.lowering.support.operations import body_of


class Kind(Enum):
    """Kinds of operations, and of the groups that they start."""

    MAP = "loop"
    ROW_REDUCTION = "row"
    REDUCTION = "reduce"
    CONTRACTION = "contraction"
    CONVOLUTION = "convolution"
    TRANSPOSE = "transpose"
    GENERAL = "general"


@dataclass(frozen=True)
class Loops:
    """The loops of a linalg.generic: extents, which of them reduce, and the map of each operand."""

    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    maps: tuple[ir.AffineMap, ...]
    num_inputs: int

    @property
    def kept(self) -> tuple[int, ...]:
        """Extents of the loops that do not reduce."""
        return tuple(e for e, r in zip(self.extents, self.reduced, strict=True) if not r)


def is_generic(op: ir.Operation) -> bool:
    return bool(op.name == "linalg.generic")


def loops_of(op: ir.Operation) -> Loops:
    """Return the loops of a linalg.generic."""
    attributes = op.attributes
    read = _read(attributes["indexing_maps"], attributes["iterator_types"])
    inputs = num_inputs(op)
    return Loops(_extents(op, read.alone, len(read.reduced)), read.reduced, read.maps, inputs)


@dataclass(frozen=True)
class _Read:
    """Parsed attributes of a linalg.generic; `alone`: each operand's dimensions indexed by a single loop, with it."""

    maps: tuple[ir.AffineMap, ...]
    reduced: tuple[bool, ...]
    alone: tuple[tuple[tuple[int, int], ...], ...]


def _read(indexing_maps: ir.Attribute, iterator_types: ir.Attribute) -> _Read:
    """Parse both attributes, memoized: parsing takes 50 times as long as the lookup, as it prints and splits them."""
    known = kept_with_contexts("loops")
    found: _Read | None = known.get((indexing_maps, iterator_types))
    if found is None:
        maps = tuple(ir.AffineMapAttr(m).value for m in indexing_maps)
        alone = tuple(
            tuple((k, e.position) for k, e in enumerate(m.results) if isinstance(e, ir.AffineDimExpr)) for m in maps
        )
        found = _Read(maps, tuple("reduction" in str(k) for k in iterator_types), alone)
        known[indexing_maps, iterator_types] = found
    return found


def num_inputs(op: ir.Operation) -> int:
    """Return how many operands of a linalg.generic are inputs; the others are initial values of its outputs."""
    return len(op.operands) - len(op.results)


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


def classify(op: ir.Operation) -> Kind:
    """Return the kind of an operation on tensors."""
    if op.name == "tensor.extract_slice" and op.operands[0].type.rank == op.results[0].type.rank:
        return Kind.MAP
    if not is_generic(op):
        return Kind.GENERAL
    if CONVOLUTION in op.attributes:
        return Kind.CONVOLUTION
    loops = loops_of(op)
    if any("scf." in inner.name for inner in body_of(op)):
        return Kind.GENERAL
    if not any(loops.reduced):
        return Kind.TRANSPOSE if _is_transpose(op, loops) else Kind.MAP
    if _is_contraction(op, loops):
        return Kind.CONTRACTION
    if not all(isinstance(e, ir.AffineDimExpr) for m in loops.maps[loops.num_inputs :] for e in m.results):
        return Kind.GENERAL
    first = loops.reduced.index(True)
    if all(loops.reduced[first:]):
        return Kind.ROW_REDUCTION
    last = len(loops.reduced) - 1 - loops.reduced[::-1].index(True)
    return Kind.REDUCTION if all(loops.reduced[first : last + 1]) else Kind.GENERAL


def _is_transpose(op: ir.Operation, loops: Loops) -> bool:
    """Match a map that only permutes dimensions."""
    if loops.num_inputs != 1 or len(body_of(op)) != 1:
        return False
    map_ = loops.maps[0]
    return bool(map_.is_permutation) and map_ != ir.AffineMap.get_identity(map_.n_dims)


def _is_contraction(op: ir.Operation, loops: Loops) -> bool:
    """Match a contraction: a sum of products of two inputs, which may be cast first."""
    if loops.num_inputs != 2 or len(op.results) != 1:
        return False
    if not all(isinstance(e, ir.AffineDimExpr) for m in loops.maps for e in m.results):
        return False
    casts = ("arith.extf", "arith.extsi", "arith.extui", "arith.truncf", "arith.trunci")
    names = [o.name for o in body_of(op) if o.name not in casts]
    return names in (["arith.mulf", "arith.addf", "linalg.yield"], ["arith.muli", "arith.addi", "linalg.yield"])
