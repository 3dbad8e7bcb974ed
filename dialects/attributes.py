"""StableHLO's attributes as plain Python values: tuples of integers, words and small dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxlib.mlir.dialects import stablehlo


def integers(attribute: Any) -> tuple[int, ...]:
    """The numbers of a dense integer array attribute, such as `dimensions`."""
    return tuple(int(i) for i in attribute)


def word(attribute: Any) -> str:
    """The word in an enumeration such as `#stablehlo<comparison_direction LT>`.

    >>> word("#stablehlo<precision HIGHEST>")
    'HIGHEST'
    """
    return str(attribute).rsplit(" ", 1)[-1].rstrip(">")


def words(attribute: Any) -> tuple[str, ...]:
    """The words of an array of enumerations, such as `precision_config`."""
    return tuple(word(a) for a in attribute)


@dataclass(frozen=True)
class DotDimensionNumbers:
    """Which dimensions of the operands of dot_general are contracted and which are batch dimensions."""

    lhs_contracting: tuple[int, ...]
    rhs_contracting: tuple[int, ...]
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]

    @classmethod
    def read(cls, attribute: Any) -> DotDimensionNumbers:
        numbers = stablehlo.DotDimensionNumbers(attribute)
        return cls(
            tuple(numbers.lhs_contracting_dimensions),
            tuple(numbers.rhs_contracting_dimensions),
            tuple(numbers.lhs_batching_dimensions),
            tuple(numbers.rhs_batching_dimensions),
        )


@dataclass(frozen=True)
class DotAlgorithm:
    """The arithmetic that a dot_general asks for: the types that its operands are rounded to, and that of its sums."""

    lhs_precision: str
    rhs_precision: str
    accumulation: str
    lhs_components: int
    rhs_components: int
    primitive_operations: int

    @classmethod
    def read(cls, attribute: Any) -> DotAlgorithm:
        algorithm = stablehlo.DotAlgorithm(attribute)
        return cls(
            str(algorithm.lhs_precision_type),
            str(algorithm.rhs_precision_type),
            str(algorithm.accumulation_type),
            int(algorithm.lhs_component_count),
            int(algorithm.rhs_component_count),
            int(algorithm.num_primitive_operations),
        )


@dataclass(frozen=True)
class PaddingConfig:
    """Edge and interior padding of each dimension; edges may be negative."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]

    @classmethod
    def read(cls, attributes: Any) -> PaddingConfig:
        return cls(
            integers(attributes["edge_padding_low"]),
            integers(attributes["edge_padding_high"]),
            integers(attributes["interior_padding"]),
        )
