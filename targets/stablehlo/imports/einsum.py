"""Deprecated operations: `broadcast`, and `einsum` and `unary_einsum` as contractions, sums and transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.errors import VerificationError
from stablexla.dialects.hlo import (
    broadcast,
    compare,
    convert,
    emit,
    integer_tensor,
    iota,
    number,
    reduce,
    reshape,
    select,
    tensor,
)
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.context import place_of
from stablexla.targets.stablehlo.imports.replacements import is_static, replaces

_ELLIPSIS = "..."


@replaces("stablehlo.broadcast")
def broadcast_(op: Any) -> list[Any] | None:
    """Rewrite to broadcast_in_dim with the new dimensions first."""
    (x,) = op.operands
    if not is_static(op):
        return None
    (result,) = op.results
    places = range(result.type.rank - x.type.rank, result.type.rank)
    return [broadcast(x, result.type.shape, list(places))]


@dataclass(frozen=True)
class Labeled:
    """An array with a label for each of its dimensions."""

    value: Any
    labels: tuple[str, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Map each label to its extent."""
        return dict(zip(self.labels, self.value.type.shape, strict=True))

    def places(self, labels: Sequence[str]) -> list[int]:
        """Return the dimensions of labels."""
        return [self.labels.index(label) for label in labels]


@replaces("stablehlo.einsum", "stablehlo.unary_einsum")
def einsum(op: Any) -> list[Any] | None:
    """Rewrite an einsum as numpy defines it: repeated labels of one operand take its diagonal, others are summed over.

    Raises:
        VerificationError: labels that do not fit the operands.
    """
    if not is_static(op):
        return None
    operands, wanted = _labeled(op)
    result = op.results[0]
    if len(operands) == 1:
        made = _own_sums(operands[0], wanted)
    else:
        lhs, rhs = (_own_sums(x, x.labels) for x in _without_stretched(*operands))
        made = _contracted(_repeated(lhs, rhs, wanted), _repeated(rhs, lhs, wanted), wanted, result.type)
    value = made.value if made.labels == wanted else stablehlo.transpose(made.value, made.places(wanted))
    return [convert(value, result.type.element_type)]


def _labeled(op: Any) -> tuple[list[Labeled], tuple[str, ...]]:
    """Parse the equation: the labeled operands, and the labels of the result.

    Raises:
        VerificationError: labels that do not fit the operands.
    """
    config = str(ir.StringAttr(op.attributes["einsum_config"]).value)
    given, arrow, result = config.replace(" ", "").partition("->")
    parts = given.split(",")
    ranks = [v.type.rank for v in op.operands]
    if not arrow or len(parts) != len(ranks):
        raise _refused(op, config, "needs a text for each operand, and -> before that of the result")
    labels = [_expanded(part, rank) for part, rank in zip(parts, ranks, strict=True)]
    if None in labels:
        raise _refused(op, config, "gives an operand more or fewer labels than dimensions")
    operands = [Labeled(v, own) for v, own in zip(op.operands, labels, strict=True) if own is not None]
    dots = max(sum(label.startswith(".") for label in o.labels) for o in operands)
    wanted = _expanded(result, len(result.replace(_ELLIPSIS, "")) + (dots if _ELLIPSIS in result else 0)) or ()
    known = {label for o in operands for label in o.labels}
    if len({*wanted}) < len(wanted) or not known.issuperset(wanted) or len(wanted) != op.results[0].type.rank:
        raise _refused(op, config, "gives the result labels that no operand has, the same one twice, or another number")
    if any(o.extents[label] != n for o in operands for label, n in zip(o.labels, o.value.type.shape, strict=True)):
        raise _refused(op, config, "takes the diagonal of dimensions that differ")
    return operands, wanted


def _expanded(text: str, rank: int) -> tuple[str, ...] | None:
    """Return a label for each of `rank` dimensions; those of an ellipsis are numbered from its end."""
    before, dots, after = text.partition(_ELLIPSIS)
    count = rank - len(before) - len(after)
    if count < 0 or (count and not dots):
        return None
    return (*before, *(f".{i}" for i in reversed(range(count))), *after)


def _refused(op: Any, config: str, why: str) -> VerificationError:
    shown = {f"operand {i}": v.type for i, v in enumerate(op.operands)} | {"result": op.results[0].type}
    return VerificationError(f'{op.name} "{config}" {why}{place_of(op.location)}', operands=shown)


def _without_stretched(lhs: Labeled, rhs: Labeled) -> tuple[Labeled, Labeled]:
    """Drop the dimensions of extent 1 that broadcast against larger ones of the other operand."""

    def squeezed(x: Labeled, other: Labeled) -> Labeled:
        kept = [label for label in x.labels if x.extents[label] == other.extents.get(label, x.extents[label]) or
                x.extents[label] != 1]  # fmt: skip
        if len(kept) == len(x.labels):
            return x
        return Labeled(reshape(x.value, [x.extents[k] for k in kept]), (*kept,))

    return squeezed(lhs, rhs), squeezed(rhs, lhs)


def _repeated(x: Labeled, other: Labeled, wanted: Sequence[str]) -> Labeled:
    """Repeat an operand along the labels that are summed over and that the other one has alone.

    Each product is made before it is added: a sum of the other's elements may overflow where that of products does not.
    """
    missing = tuple(label for label in other.labels if label not in (*x.labels, *wanted))
    if not missing:
        return x
    labels = (*missing, *x.labels)
    shape = [{**x.extents, **other.extents}[label] for label in labels]
    return Labeled(broadcast(x.value, shape, range(len(missing), len(labels))), labels)


def _own_sums(x: Labeled, needed: Sequence[str]) -> Labeled:
    """Take diagonals, and sum over labels that are not needed."""
    kept = tuple(label for place, label in enumerate(x.labels) if label in needed and label not in x.labels[:place])
    if kept == x.labels:
        return x
    value = x.value
    for place, label in enumerate(x.labels):
        if (first := x.labels.index(label)) != place:
            value = select(_equal(value, first, place), value, _zeros(value))
    places = [p for p, label in enumerate(x.labels) if label not in needed or label in x.labels[:p]]
    return Labeled(reduce(value, number(value.type, "0"), places, "add"), kept)


def _zeros(x: Any) -> Any:
    return broadcast(number(x.type, "0"), x.type.shape)


def _equal(x: Any, first: int, second: int) -> Any:
    """Create the mask of the diagonal: equal indices along two dimensions."""
    counting = integer_tensor(32, x.type.shape)
    return compare(iota(counting, first), iota(counting, second), "EQ")


def _contracted(lhs: Labeled, rhs: Labeled, wanted: Sequence[str], result: Any) -> Labeled:
    """Contract with dot_general: shared labels are batching when the result has them, contracting otherwise."""
    both = [label for label in lhs.labels if label in rhs.labels]
    batching, contracting = [b for b in both if b in wanted], [b for b in both if b not in wanted]
    labels = (*batching, *(k for x in (lhs, rhs) for k in x.labels if k not in both))
    sizes = {**lhs.extents, **rhs.extents}
    numbers = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=lhs.places(batching),
        rhs_batching_dimensions=rhs.places(batching),
        lhs_contracting_dimensions=lhs.places(contracting),
        rhs_contracting_dimensions=rhs.places(contracting),
    )
    type_ = tensor(result, [sizes[label] for label in labels])
    return Labeled(
        emit("stablehlo.dot_general", [lhs.value, rhs.value], [type_], {"dot_dimension_numbers": numbers}), labels
    )
