"""The attributes of a convolution: the order of dimensions and the window, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.checking import Rules, checking
from stablexla.dialects.attributes.arguments import MOST_ITEMS, told
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape

__all__ = ["ConvDimensionNumbers"]


#: The roles of dimensions, or their letters as `ConvDimensionNumbers.of` takes them.
GivenNumbers: TypeAlias = "ConvDimensionNumbers | Sequence[str]"


class GivenWindow(NamedTuple):
    """How the window moves, as a user says it: what is None has its default."""

    strides: Sequence[int] | None
    padding: str | Iterable[tuple[int, int]]
    lhs_dilation: Sequence[int] | None = None
    rhs_dilation: Sequence[int] | None = None
    reversal: Sequence[bool] | None = None


class Window(NamedTuple):
    """How the window moves: for each spatial dimension its stride, dilations, direction and padding."""

    strides: tuple[int, ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    reversal: tuple[bool, ...]
    padding: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class ConvDimensionNumbers:
    """The roles of the dimensions of a convolution's input, kernel and output.

    >>> sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC").kernel_spatial_dimensions
    (0, 1)
    """

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: Iterable[int]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: Iterable[int]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: Iterable[int]

    def __post_init__(self) -> None:
        with checking("ConvDimensionNumbers") as rule:
            for name in self.__dataclass_fields__:
                check = rule.integers if name.endswith("dimensions") else rule.integer
                object.__setattr__(self, name, check(name, getattr(self, name)))

    @classmethod
    def default(cls, num_spatial_dimensions: int) -> ConvDimensionNumbers:
        """XLA's order: batch, features, spatial dimensions; output features, input features, spatial dimensions.

        >>> sx.ConvDimensionNumbers.default(2) == sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")
        True
        """
        with checking("ConvDimensionNumbers.default") as rule:
            name = "num_spatial_dimensions"
            count = rule.integer(name, num_spatial_dimensions)
            rule("", 0 <= count <= MOST_ITEMS, f"{name} must be from 0 on, and no more than {MOST_ITEMS}, not {count}")
        spatial = range(2, 2 + count)
        return cls(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)

    @classmethod
    def of(cls, input: str, kernel: str, output: str) -> ConvDimensionNumbers:
        """The numbers for orders that are spelled with a letter for each dimension.

        `N` is the batch, `C` the features, `I` and `O` the kernel's input and output features; any other letters are
        spatial dimensions, in the order in which `input` has them.

        Raises:
            ShapeError: letters that are missing, or not the same in all three.

        >>> sx.ConvDimensionNumbers.of("CN", "OI", "NC").input_batch_dimension
        1
        """
        with checking("ConvDimensionNumbers.of", input=input, kernel=kernel, output=output) as rule:
            spatial = [letter for letter in rule.text("input", input) if letter not in "NC"]
            for name, word, features in (("input", input, "NC"), ("kernel", kernel, "IO"), ("output", output, "NC")):
                letters = [*features, *spatial]
                known = sorted(rule.text(name, word)) == sorted(letters)
                rule("", known, f"{name} {told(word)} must have the letters {''.join(letters)}, each once")
        return cls(
            input.index("N"),
            input.index("C"),
            map(input.index, spatial),
            kernel.index("I"),
            kernel.index("O"),
            map(kernel.index, spatial),
            output.index("N"),
            output.index("C"),
            map(output.index, spatial),
        )

    def attribute(self, context: ir.Context) -> ir.Attribute:
        """StableHLO's attribute of these numbers."""
        numbers = {name: getattr(self, name) for name in self.__dataclass_fields__}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in numbers.items()}
        return stablehlo.ConvDimensionNumbers.get(**lists, ctx=context)

    def result_dimensions(self, lhs: Shape, rhs: Shape, window: Window, batch_group_count: int) -> tuple[int, ...]:
        """C25: the result's dimensions."""
        sizes = [0] * lhs.rank
        sizes[self.output_batch_dimension] = lhs.dimensions[self.input_batch_dimension] // batch_group_count
        sizes[self.output_feature_dimension] = rhs.dimensions[self.kernel_output_feature_dimension]
        for i, (output, input, kernel) in enumerate(
            zip(
                self.output_spatial_dimensions,
                self.input_spatial_dimensions,
                self.kernel_spatial_dimensions,
                strict=True,
            )
        ):
            low, high = window.padding[i]
            padded = low + dilated(lhs.dimensions[input], window.lhs_dilation[i]) + high
            span = dilated(rhs.dimensions[kernel], window.rhs_dilation[i])
            sizes[output] = (padded - span) // window.strides[i] + 1 if span <= padded else 0
        return tuple(sizes)


def dilated(size: int, dilation: int) -> int:
    """How long a dimension is whose elements are set `dilation` apart."""
    return (size - 1) * dilation + 1 if size else 0


def checked_numbers(rule: Rules, numbers: object, rank: int) -> ConvDimensionNumbers:
    """C12, C13, C17 to C20: each dimension is named once."""
    if numbers is None:
        return ConvDimensionNumbers.default(rank - 2)
    if isinstance(numbers, list | tuple) and len(numbers) == 3 and all(isinstance(each, str) for each in numbers):
        try:
            numbers = ConvDimensionNumbers.of(*numbers)
        except ShapeError as error:
            rule.broken("", f"dimension_numbers: {error.summary}")
    if not isinstance(numbers, ConvDimensionNumbers):
        hint = '("NHWC", "HWIO", "NHWC")'
        rule.broken("", f"dimension_numbers must be ConvDimensionNumbers, not {told(numbers)}", hint)
    for what, first, spatial, count_rule, rule_of_all in (
        ("input", ("batch", "feature"), numbers.input_spatial_dimensions, "C12", "C13"),
        ("kernel", ("input_feature", "output_feature"), numbers.kernel_spatial_dimensions, "C17", "C18"),
        ("output", ("batch", "feature"), numbers.output_spatial_dimensions, "C19", "C20"),
    ):
        places = rule.integers(f"{what}_spatial_dimensions", spatial)
        rule(count_rule, len(places) == rank - 2, f"{what}_spatial_dimensions must name {rank - 2} dimensions")
        named = rule.integers(what, [getattr(numbers, f"{what}_{name}_dimension") for name in first]) + places
        there = len(set(named)) == rank and all(0 <= place < rank for place in named)
        rule(rule_of_all, there, f"the {what} dimensions must be 0 to {rank - 1}, each once, not {sorted(named)}")
    return numbers


def checked_sizes(
    rule: Rules, name: str, given: Sequence[int] | None, count: int, rules: tuple[str, str]
) -> tuple[int, ...]:
    """A positive number for each spatial dimension; without any, ones."""
    sizes = (1,) * count if given is None else rule.integers(name, given)
    rule(rules[0], len(sizes) == count, f"{name} must have a number for each of {count} spatial dimensions")
    rule(rules[1], all(size > 0 for size in sizes), f"{name} must be at least 1, not {sizes}")
    return sizes


def checked_padding(
    rule: Rules, given: object, window: Window, inputs: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """C4: (low, high) for each spatial dimension, also for a padding in a word."""
    count = len(sizes)
    if isinstance(given, str):
        rule("", given in ("SAME", "VALID"), f'padding must be "SAME", "VALID" or pairs of numbers, not {told(given)}')
        if given == "VALID":
            return ((0, 0),) * count
        return tuple(_same_padding(window, i, inputs[i], sizes[i]) for i in range(count))
    pairs = rule.rows("padding", given, "C4")
    fits = len(pairs) == count and all(len(pair) == 2 for pair in pairs)
    rule("C4", fits, f"padding must be a pair (low, high) for each of {count} spatial dimensions")
    return tuple((pair[0], pair[1]) for pair in pairs)


def _same_padding(window: Window, i: int, size: int, weights: int) -> tuple[int, int]:
    stride = window.strides[i]
    size = dilated(size, window.lhs_dilation[i])
    span = dilated(weights, window.rhs_dilation[i])
    total = max(0, (-(-size // stride) - 1) * stride + span - size)
    return total // 2, total - total // 2
