"""Contractions: sums of products over dimensions that two operands share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.checking import Rules, checking, same_element_type
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape

__all__ = ["DotDimensionNumbers", "dot", "dot_general"]

#: "DEFAULT", "HIGH" or "HIGHEST", for both operands or one for each.
Precision = str | Sequence[str]


@dataclass(frozen=True)
class DotDimensionNumbers:
    """Which dimensions of two operands are summed over, and which run along side by side; without any, none.

    >>> sx.DotDimensionNumbers([2], [1], lhs_batch_dimensions=[0], rhs_batch_dimensions=[0]).lhs_contracting_dimensions
    (2,)
    """

    lhs_contracting_dimensions: Iterable[int] = field(default=())
    rhs_contracting_dimensions: Iterable[int] = field(default=())
    lhs_batch_dimensions: Iterable[int] = field(default=())
    rhs_batch_dimensions: Iterable[int] = field(default=())

    def __post_init__(self) -> None:
        with checking("DotDimensionNumbers") as rule:
            for name in self.__dataclass_fields__:
                object.__setattr__(self, name, rule.integers(name, getattr(self, name)))

    def attribute(self, context: ir.Context) -> ir.Attribute:
        """StableHLO's attribute of these numbers."""
        return stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=self.lhs_batch_dimensions,
            rhs_batching_dimensions=self.rhs_batch_dimensions,
            lhs_contracting_dimensions=self.lhs_contracting_dimensions,
            rhs_contracting_dimensions=self.rhs_contracting_dimensions,
            context=context,
        )


@operation("stablehlo.dot_general")
def dot(
    lhs: XlaOp,
    rhs: XlaOp,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """The product of vectors or matrices: over the last dimension of `lhs` and the first one of `rhs`.

    Raises:
        ShapeError: an operand that is neither a vector nor a matrix; and as `dot_general`.

    Source: `Dot` of XLA's operation semantics; StableHLO `dot_general`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.dot(b.parameter(0, sx.f32[2, 3]), b.parameter(1, sx.f32[3, 4]))
    XlaOp(stablehlo.dot_general, f32[2,4])
    """
    with checking("dot", lhs=lhs, rhs=rhs) as rule:
        x, y = rule.ops(lhs=rule.op("lhs", lhs), rhs=rule.op("rhs", rhs))
        for name, op in (("lhs", x), ("rhs", y)):
            rule("", op.shape.rank in (1, 2), f"{name} must be a vector or a matrix", "sx.dot_general")
    dimensions = DotDimensionNumbers((x.shape.rank - 1,), (0,))
    return _dot("dot", x, y, dimensions, precision_config, preferred_element_type)


@operation("stablehlo.dot_general")
def dot_general(
    lhs: XlaOp,
    rhs: XlaOp,
    dimension_numbers: DotDimensionNumbers,
    precision_config: Precision | None = None,
    preferred_element_type: str | ElementType | None = None,
) -> XlaOp:
    """Sums of products over the contracting dimensions, for each index of the batch dimensions.

    The result's dimensions are the batch dimensions, what is left of `lhs`, and what is left of `rhs`.

    Args:
        lhs: an array of any type.
        rhs: an array of the same element type.
        dimension_numbers: `DotDimensionNumbers`.
        precision_config: "DEFAULT", "HIGH" or "HIGHEST", for both operands or for each.
        preferred_element_type: the element type to sum in and to give, of the same kind and not narrower.

    Raises:
        ShapeError: (C1, C2) different numbers of dimensions for `lhs` and `rhs`; (C3, C4) a dimension twice; (C5 to C8)
            one that is not there; (C9, C10) sizes that differ; (C11) precisions that are not two; (C13) element types
            that differ.

    Source: `DotGeneral` of XLA's operation semantics; StableHLO `dot_general`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[5, 2, 3]), b.parameter(1, sx.f32[5, 4, 3])
    >>> sx.dot_general(x, y, sx.DotDimensionNumbers((2,), (2,), (0,), (0,)))
    XlaOp(stablehlo.dot_general, f32[5,2,4])
    """
    with checking("dot_general", lhs=lhs, rhs=rhs, dimension_numbers=dimension_numbers) as rule:
        x, y = rule.ops(lhs=rule.op("lhs", lhs), rhs=rule.op("rhs", rhs))
        known = isinstance(dimension_numbers, DotDimensionNumbers)
        rule("", known, "dimension_numbers must be DotDimensionNumbers")
    return _dot("dot_general", x, y, dimension_numbers, precision_config, preferred_element_type)


def _dot(
    name: str,
    x: XlaOp,
    y: XlaOp,
    numbers: DotDimensionNumbers,
    precision_config: Precision | None,
    preferred_element_type: str | ElementType | None,
) -> XlaOp:
    with checking(name, lhs=x, rhs=y, dimension_numbers=numbers) as rule:
        rule.arrays(lhs=x, rhs=y)
        rule("C13", same_element_type(x, y), "lhs and rhs must have the same element type")
        left = _Side(rule, "lhs", x, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions)
        right = _Side(rule, "rhs", y, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions)
        left.check("C3", "C5", "C6")
        right.check("C4", "C7", "C8")
        _check_pairs(rule, "C1", "C9", "batch", left, left.batch, right, right.batch)
        _check_pairs(rule, "C2", "C10", "contracting", left, left.contracting, right, right.contracting)
        wanted = preferred_type(rule, x.shape.element_type, preferred_element_type)
        precisions = precision_attribute(rule, precision_config, x.builder.context, "C11", "I7")
    shape = Shape(wanted, (*left.sizes(left.batch), *left.rest(), *right.rest()))
    attributes = {"dot_dimension_numbers": numbers.attribute(x.builder.context)} | precisions
    return x.builder.emit("stablehlo.dot_general", [x, y], shape, attributes)


class _Side:
    """One operand with its batch and contracting dimensions."""

    def __init__(self, rule: Rules, name: str, op: XlaOp, batch: Iterable[int], contracting: Iterable[int]) -> None:
        self.rule, self.name, self.shape = rule, name, op.shape
        self.batch = rule.integers(f"{name}_batch_dimensions", batch)
        self.contracting = rule.integers(f"{name}_contracting_dimensions", contracting)

    def check(self, unique: str, batch: str, contracting: str) -> None:
        both = self.batch + self.contracting
        self.rule(unique, len(set(both)) == len(both), f"a dimension of {self.name} is named twice in {both}")
        for rule, chosen in ((batch, self.batch), (contracting, self.contracting)):
            for place in chosen:
                rank = self.shape.rank
                self.rule.place(rule, place, rank, f"{place} is no dimension of {self.name}, which has rank {rank}")

    def sizes(self, chosen: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.shape.dimensions[place] for place in chosen)

    def rest(self) -> tuple[int, ...]:
        taken = self.batch + self.contracting
        return self.sizes(place for place in range(self.shape.rank) if place not in taken)


def _check_pairs(
    rule: Rules,
    count_rule: str,
    size_rule: str,
    what: str,
    left: _Side,
    of_left: tuple[int, ...],
    right: _Side,
    of_right: tuple[int, ...],
) -> None:
    """Dimensions that belong together are as many, and of the same sizes."""
    counts = f"lhs has {len(of_left)} {what} dimensions, rhs has {len(of_right)}"
    rule(count_rule, len(of_left) == len(of_right), counts)
    for a, b in zip(of_left, of_right):
        m, n = left.shape.dimensions[a], right.shape.dimensions[b]
        rule(size_rule, m == n, f"{what} dimension {a} of lhs has size {m}, but dimension {b} of rhs has size {n}")


def preferred_type(rule: Rules, given: ElementType, preferred: str | ElementType | None) -> ElementType:
    """The element type of sums of products of elements of type `given`."""
    if preferred is None:
        return given
    wanted = rule.element_type("preferred_element_type", preferred)
    fits = wanted.kind is given.kind and wanted.bits >= given.bits
    rule("", fits, f"preferred_element_type {wanted} must be of the same kind as {given} and no narrower")
    return wanted


def precision_attribute(
    rule: Rules, given: Precision | None, context: ir.Context, of_count: str, of_word: str
) -> dict[str, ir.Attribute]:
    """The attribute with a precision for each operand, or none; `of_count` and `of_word` are the rules' numbers."""
    if given is None:
        return {}
    what = "a word, or a sequence of one for each operand"
    precisions = [given, given] if isinstance(given, str) else rule.items("precision_config", given, what)
    rule(of_count, len(precisions) == 2, "precision_config must have a precision for each of the two operands")
    for precision in precisions:
        rule.word(of_word, "precision_config", precision, ("DEFAULT", "HIGH", "HIGHEST"))
    made = [stablehlo.PrecisionAttr.get(precision, context) for precision in precisions]
    return {"precision_config": ir.ArrayAttr.get(made, context)}
