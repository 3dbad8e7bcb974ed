"""Products over groups of rows of different sizes, composed of masks and one product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.ops import elementwise
from stablexla.ops.contraction import DotDimensionNumbers, Precision, _dot
from stablexla.ops.conversion import convert_element_type
from stablexla.ops.shape import broadcast_in_dim, transpose
from stablexla.ops.window import reduce_window_with_general_padding

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot"]


@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """`DotDimensionNumbers`, the dimension of `lhs` that is cut into groups, and the one of `rhs` that counts them.

    >>> numbers = sx.DotDimensionNumbers((1,), (1,))
    >>> sx.RaggedDotDimensionNumbers(numbers, (0,), (0,)).rhs_group_dimensions
    (0,)
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Iterable[int]
    rhs_group_dimensions: Iterable[int] = field(default=())

    def __post_init__(self) -> None:
        with checking("RaggedDotDimensionNumbers") as rule:
            known = isinstance(self.dot_dimension_numbers, DotDimensionNumbers)
            rule("", known, "dot_dimension_numbers must be DotDimensionNumbers")
            for name in ("lhs_ragged_dimensions", "rhs_group_dimensions"):
                object.__setattr__(self, name, rule.integers(name, getattr(self, name)))


@operation("stablehlo.dot_general", family="contraction")
def ragged_dot(
    lhs: XlaOp,
    rhs: XlaOp,
    group_sizes: XlaOp,
    dimension_numbers: RaggedDotDimensionNumbers,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """`dot_general` in groups: a ragged dimension of `lhs` is cut into groups of the given sizes, one after another.

    What the ragged dimension is says what becomes of the groups; b, m, n and k are any numbers of batch dimensions, of
    others, and of contracting ones:

    - one of m: `[b,m,k], [g,b,k,n] -> [b,m,n]`, each row is multiplied with its own group's part of `rhs`; rows behind
      all groups give zeros;
    - one of k: `[b,m,k], [b,k,n] -> [g,b,m,n]`, a product for each group;
    - one of b: `[b,m,k], [b,k,n] -> [b,m,n]`, as `dot_general`.

    Args:
        lhs: an array of any type.
        rhs: an array of the same element type.
        group_sizes: integers of g elements, or of those of all dimensions before the ragged one (batch dimensions,
            then those of its kind) and g.
        dimension_numbers: `RaggedDotDimensionNumbers`; group dimensions of `rhs` only in the first case.
        precision_config: as of `dot_general`.
        preferred_element_type: as of `dot_general`.

    Raises:
        ShapeError: not one ragged dimension, or one that is not there; group dimensions that do not fit; group sizes of
            other types or dimensions; and as `dot_general`.

    Source: `RaggedDot` of XLA's builder; CHLO `ragged_dot`.

    >>> b = sx.XlaBuilder("example")
    >>> x, w, sizes = (b.parameter(n, s) for n, s in enumerate((sx.f32[8, 4], sx.f32[3, 4, 5], sx.s32[3])))
    >>> sx.ragged_dot(x, w, sizes, sx.RaggedDotDimensionNumbers(sx.DotDimensionNumbers((1,), (1,)), (0,), (0,)))
    XlaOp(stablehlo.dot_general, f32[8,5])
    """
    with checking("ragged_dot", lhs=lhs, rhs=rhs, group_sizes=group_sizes, dimension_numbers=dimension_numbers) as rule:
        x, y, sizes = rule.ops(
            lhs=rule.op("lhs", lhs), rhs=rule.op("rhs", rhs), group_sizes=rule.op("group_sizes", group_sizes)
        )
        rule.arrays(lhs=x, rhs=y, group_sizes=sizes)
        known = isinstance(dimension_numbers, RaggedDotDimensionNumbers)
        rule("", known, "dimension_numbers must be RaggedDotDimensionNumbers")
        ragged, before = _check_numbers(rule, x, y, dimension_numbers)
        _check_sizes(rule, x, y, sizes, before, dimension_numbers)
    numbers = dimension_numbers.dot_dimension_numbers
    lhs_batch, lhs_contracting = tuple(numbers.lhs_batch_dimensions), tuple(numbers.lhs_contracting_dimensions)
    rhs_batch, rhs_contracting = tuple(numbers.rhs_batch_dimensions), tuple(numbers.rhs_contracting_dimensions)
    if ragged not in lhs_batch:
        groups = _groups_of(sizes)
        x = _by_group(x, ragged, before, groups)
        lhs_batch, lhs_contracting = _shifted(lhs_batch), _shifted(lhs_contracting)
        if ragged + 1 in lhs_contracting:
            place = lhs_contracting.index(ragged + 1)
            y = _by_group(y, rhs_contracting[place], (*rhs_batch, *rhs_contracting[:place]), groups)
            lhs_batch, rhs_batch = (0, *lhs_batch), (0, *_shifted(rhs_batch))
            rhs_contracting = _shifted(rhs_contracting)
        else:
            lhs_contracting = (0, *lhs_contracting)
            rhs_contracting = (*dimension_numbers.rhs_group_dimensions, *rhs_contracting)
    made = DotDimensionNumbers(lhs_contracting, rhs_contracting, lhs_batch, rhs_batch)
    return _dot("ragged_dot", x, y, made, precision_config, preferred_element_type)


def _check_numbers(rule: Rules, x: XlaOp, y: XlaOp, given: RaggedDotDimensionNumbers) -> tuple[int, tuple[int, ...]]:
    """The ragged dimension of `lhs`, and the dimensions that group sizes may be given for one by one."""
    numbers = given.dot_dimension_numbers
    batch = rule.integers("lhs_batch_dimensions", numbers.lhs_batch_dimensions)
    contracting = rule.integers("lhs_contracting_dimensions", numbers.lhs_contracting_dimensions)
    dimensions = tuple(given.lhs_ragged_dimensions)
    rule("", len(dimensions) == 1, f"lhs_ragged_dimensions must name one dimension, not {len(dimensions)}")
    ragged = dimensions[0]
    rule.place("", ragged, x.shape.rank, f"lhs_ragged_dimensions: {ragged} is no dimension of lhs")
    groups = tuple(given.rhs_group_dimensions)
    others = (*rule.integers("rhs_batch_dimensions", numbers.rhs_batch_dimensions),)
    others += rule.integers("rhs_contracting_dimensions", numbers.rhs_contracting_dimensions)
    for place in groups:
        rule.place("", place, y.shape.rank, f"rhs_group_dimensions: {place} is no dimension of rhs")
        rule("", place not in others, f"rhs_group_dimensions: {place} is a batch or contracting dimension already")
    free = ragged not in batch + contracting
    kind = "neither batch nor contracting" if free else "a batch or contracting one"
    text = f"rhs must have {int(free)} group dimensions where the ragged dimension is {kind}, not {len(groups)}"
    rule("", len(groups) == int(free), text)
    if ragged in batch:
        return ragged, batch[: batch.index(ragged)]
    if ragged in contracting:
        return ragged, (*batch, *contracting[: contracting.index(ragged)])
    return ragged, (*batch, *(d for d in range(ragged) if d not in batch + contracting))


def _check_sizes(
    rule: Rules, x: XlaOp, y: XlaOp, sizes: XlaOp, before: Sequence[int], given: RaggedDotDimensionNumbers
) -> None:
    rule("", sizes.shape.element_type.is_integer, f"group_sizes must be integers, not {sizes.shape}")
    there = all(0 <= place < x.shape.rank for place in before)
    prefix = tuple(x.shape.dimensions[place] for place in before) if there else ()
    fits = sizes.shape.rank >= 1 and sizes.shape.dimensions[:-1] in ((), prefix)
    spelled = ",".join(map(str, (*prefix, "g")))
    rule("", fits, f"group_sizes must have the dimensions [g] or [{spelled}], not {list(sizes.shape.dimensions)}")
    for place in given.rhs_group_dimensions:
        count, have = sizes.shape.dimensions[-1], y.shape.dimensions[place]
        rule("", count == have, f"dimension {place} of rhs has size {have}, and there are {count} groups")


def _groups_of(sizes: XlaOp) -> tuple[XlaOp, XlaOp]:
    """Where each group starts, and where it ends: sums of the sizes along the last dimension."""
    if sizes.shape.element_type.bits < 32:
        sizes = convert_element_type(sizes, "s32")
    count, rank = sizes.shape.dimensions[-1], sizes.shape.rank
    if not count:
        return sizes, sizes
    window, ones = (*[1] * (rank - 1), count), [1] * rank
    padding = (*[(0, 0)] * (rank - 1), (count - 1, 0))
    zero = sizes.builder.constant(0, sizes.shape.element_type)
    ends = reduce_window_with_general_padding(sizes, zero, elementwise.add, window, ones, ones, ones, padding)
    return ends - sizes, ends


def _by_group(x: XlaOp, ragged: int, before: Sequence[int], groups: tuple[XlaOp, XlaOp]) -> XlaOp:
    """For each group, in a dimension before all others, `x` with zeros outside of the group."""
    count = groups[0].shape.dimensions[-1]
    shape = (count, *x.shape.dimensions)
    places = (*_shifted(before), 0) if groups[0].shape.rank > 1 else (0,)
    starts, ends = (_spread(bound, shape, places) for bound in groups)
    index = x.builder.iota(starts.shape, ragged + 1)
    inside = elementwise.and_(elementwise.le(starts, index), elementwise.lt(index, ends))
    nothing = False if x.shape.element_type.name == "pred" else 0
    return elementwise.select(inside, broadcast_in_dim(x, shape, range(1, len(shape))), nothing)


def _spread(x: XlaOp, shape: Sequence[int], places: Sequence[int]) -> XlaOp:
    """`x` in these dimensions, its own becoming those at `places`, in any order."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    return broadcast_in_dim(transpose(x, order), shape, sorted(places))


def _shifted(dimensions: Iterable[int]) -> tuple[int, ...]:
    return tuple(dimension + 1 for dimension in dimensions)
