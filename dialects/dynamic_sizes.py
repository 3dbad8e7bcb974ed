"""Shape inference for bounded dynamic dimensions: which result dimensions are dynamic, and their sizes.

The builder (for result shapes) and the pass that expands dynamic sizes both query the rules in `SIZES`. A rule sees
arrays in their bounds, and for each array the sizes of its dynamic dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn, Protocol

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.lazy_dataclass import dataclass


class Size(Protocol):
    """A size at run time: a value with arithmetic, also with integers."""

    def __add__(self, other: Size | int) -> Size: ...
    def __sub__(self, other: Size | int) -> Size: ...
    def __mul__(self, other: Size | int) -> Size: ...
    def __floordiv__(self, other: int) -> Size: ...
    def least(self, other: Size | int) -> Size:
        """Return the minimum."""

    def most(self, other: Size | int) -> Size:
        """Return the maximum."""


Extents = tuple[int, ...]
Sizes = Mapping[int, Size]


@dataclass(frozen=True)
class Use:
    """One use of an operation.

    Attributes:
        name: the operation's.
        operands, results: the extents of the arrays, bounds where they are dynamic; `()` for tokens.
        sizes: the dynamic dimensions of each operand, with their sizes.
        attributes: the operation's attributes.
    """

    name: str
    operands: Sequence[Extents]
    results: Sequence[Extents]
    sizes: Sequence[Sizes]
    attributes: Mapping[str, Any]

    def refuse(self, summary: str, hint: str = "") -> NoReturn:
        """Raise the refusal of this use."""
        raise Refusal(summary, hint or WAY_OUT)

    def only(self, operand: int, allowed: Iterable[int], summary: str) -> None:
        """Refuse dynamic dimensions of an operand other than these."""
        if set(self.sizes[operand]) - set(allowed):
            self.refuse(summary)


class Refusal(Exception):
    """A dynamic dimension that an operation does not support."""

    def __init__(self, summary: str, hint: str) -> None:
        super().__init__(summary)
        self.summary, self.hint = summary, hint


WAY_OUT = "sx.set_dimension_size(x, bound, dimension) makes a dimension static again"

Rule = Callable[[Use], Sequence[Sizes]]
SIZES: dict[str, Rule] = {}


def sizes_by(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for the result sizes of operations of these names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in SIZES, f"two rules for the sizes of {name}"
            SIZES[name] = rule
        return rule

    return register


def result_sizes(use: Use) -> Sequence[Sizes]:
    """Infer the dynamic dimensions of each result, with their sizes.

    Raises:
        Refusal: the operation takes no such operands.
    """
    rule = SIZES.get(use.name)
    if rule is None:
        use.refuse("it takes no array with a dynamic dimension")
    return rule(use)


def agree(sizes: Iterable[Sizes]) -> dict[int, Size]:
    """Merge sizes that must be equal, by dimension; should they differ at run time, the smallest."""
    found: dict[int, list[Size]] = {}
    for own in sizes:
        for place, size in own.items():
            found.setdefault(place, []).append(size)
    return {place: reduce(lambda a, b: a.least(b), same) for place, same in sorted(found.items())}


def extents_of(type_: Any) -> tuple[Extents, tuple[int, ...]]:
    """Return the extents of a tensor type, bounds where they are dynamic, and its dynamic dimensions.

    Types with unbounded dimensions, and types that are no tensors, give `((), ())`.
    """
    if not isinstance(type_, ir.RankedTensorType):
        return (), ()
    if type_.has_static_shape:
        return tuple(type_.shape), ()
    places = tuple(i for i in range(type_.rank) if type_.is_dynamic_dim(i))
    if type_.encoding is None:
        return (), ()
    bounds = stablehlo.TypeExtensions(type_.encoding).bounds
    extents = tuple(bounds[i] if i in places else n for i, n in enumerate(type_.shape))
    return (extents, places) if all(n >= 0 for n in extents) else ((), ())


def is_unknown(type_: Any) -> bool:
    """Whether a type is an array with an unbounded dynamic dimension."""
    return isinstance(type_, ir.RankedTensorType) and not type_.has_static_shape and not extents_of(type_)[1]
