"""StableHLO's attributes as plain Python values: tuples of integers, words and small dataclasses."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.lazy_dataclass import dataclass


def integers(attribute: Any) -> tuple[int, ...]:
    """Return the numbers of a dense integer array attribute, such as `dimensions`."""
    return tuple(int(i) for i in attribute)


def word(attribute: Any) -> str:
    """Return the word of an enumeration such as `#stablehlo<comparison_direction LT>`.

    >>> word("#stablehlo<precision HIGHEST>")
    'HIGHEST'
    """
    return str(attribute).rsplit(" ", 1)[-1].rstrip(">")


def words(attribute: Any) -> tuple[str, ...]:
    """Return the words of an array of enumerations, such as `precision_config`."""
    return tuple(word(a) for a in attribute)


def sort_dimension(op: Any) -> int:
    """Return a sort's dimension, counted from 0; artifacts leave out the last one, which is the default."""
    named = int(op.attributes["dimension"]) if "dimension" in op.attributes else -1
    return int(named % op.operands[0].type.rank)


@dataclass(frozen=True)
class DotDimensionNumbers:
    """Contracting and batching dimensions of the operands of dot_general."""

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
    """Numerics of a dot_general: the types to which its operands are rounded, and the accumulation type."""

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


@dataclass(frozen=True)
class SpatialDimension:
    """One spatial dimension of a convolution: its numbers in lhs, rhs and result, and the window along it."""

    input: int
    kernel: int
    output: int
    stride: int = 1
    low: int = 0
    high: int = 0
    lhs_dilation: int = 1
    rhs_dilation: int = 1
    reversed: bool = False


@dataclass(frozen=True)
class Convolution:
    """The attributes of a convolution."""

    input_batch: int
    input_feature: int
    kernel_input: int
    kernel_output: int
    output_batch: int
    output_feature: int
    spatial: tuple[SpatialDimension, ...]
    feature_groups: int = 1
    batch_groups: int = 1

    @classmethod
    def read(cls, attributes: Any) -> Convolution:
        numbers = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
        places = zip(
            numbers.input_spatial_dimensions,
            numbers.kernel_spatial_dimensions,
            numbers.output_spatial_dimensions,
            strict=True,
        )
        count = len(numbers.input_spatial_dimensions)

        def each(name: str, default: int) -> tuple[int, ...]:
            return integers(attributes[name]) if name in attributes else (default,) * count

        padding = integers(attributes["padding"]) if "padding" in attributes else (0,) * (2 * count)
        columns = (
            each("window_strides", 1),
            padding[::2],
            padding[1::2],
            each("lhs_dilation", 1),
            each("rhs_dilation", 1),
            map(bool, each("window_reversal", 0)),
        )
        spatial = tuple(SpatialDimension(*p, *row) for p, row in zip(places, zip(*columns, strict=True), strict=True))
        return cls(
            int(numbers.input_batch_dimension),
            int(numbers.input_feature_dimension),
            int(numbers.kernel_input_feature_dimension),
            int(numbers.kernel_output_feature_dimension),
            int(numbers.output_batch_dimension),
            int(numbers.output_feature_dimension),
            spatial,
            int(attributes["feature_group_count"]),
            int(attributes["batch_group_count"]),
        )
