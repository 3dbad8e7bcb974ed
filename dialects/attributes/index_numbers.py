"""Dimension numbers of gather and scatter, as Python values and as StableHLO's attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.attributes.arguments import integer, integers
from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class GatherDimensionNumbers:
    """Dimension numbers of `gather`: the layout of its indices, and of the slices in its result.

    Attributes:
        offset_dims: the result's dimensions that index into a slice.
        collapsed_slice_dims: the operand's dimensions, of size 1 in a slice, that the result lacks.
        start_index_map: for each number of an index vector the dimension of the operand that it indexes.
        index_vector_dim: the dimension of the indices along which a vector lies; their rank, when each number is one.
        operand_batching_dims: dimensions of the operand that go along with dimensions of the indices,
        start_indices_batching_dims: namely with these.

    >>> sx.GatherDimensionNumbers([1], [0], [0], 1).offset_dims
    (1,)
    """

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _make_tuples(self, self.__dataclass_fields__)

    @classmethod
    def read(cls, attribute: Any) -> GatherDimensionNumbers:
        numbers = stablehlo.GatherDimensionNumbers(attribute)
        return cls(
            tuple(numbers.offset_dims),
            tuple(numbers.collapsed_slice_dims),
            tuple(numbers.start_index_map),
            int(numbers.index_vector_dim),
            tuple(numbers.operand_batching_dims),
            tuple(numbers.start_indices_batching_dims),
        )

    def attribute(self, context: ir.Context) -> ir.Attribute:
        """StableHLO's attribute of these numbers."""
        return stablehlo.GatherDimensionNumbers.get(
            offset_dims=self.offset_dims,
            collapsed_slice_dims=self.collapsed_slice_dims,
            operand_batching_dims=self.operand_batching_dims,
            start_indices_batching_dims=self.start_indices_batching_dims,
            start_index_map=self.start_index_map,
            index_vector_dim=self.index_vector_dim,
            context=context,
        )


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    """Dimension numbers of `scatter`: the layout of its indices, and of the windows in its updates.

    Attributes:
        update_window_dims: the updates' dimensions that index into a window.
        inserted_window_dims: the operands' dimensions, of size 1 in a window, that the updates lack.
        scatter_dims_to_operand_dims: for each number of an index vector the dimension of the operands that it indexes.
        index_vector_dim: the dimension of the indices along which a vector lies; their rank, when each number is one.
        input_batching_dims: dimensions of the operands that go along with dimensions of the indices,
        scatter_indices_batching_dims: namely with these.

    >>> sx.ScatterDimensionNumbers([1], [0], [0], 1).inserted_window_dims
    (0,)
    """

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _make_tuples(self, self.__dataclass_fields__)

    @classmethod
    def read(cls, attribute: Any) -> ScatterDimensionNumbers:
        numbers = stablehlo.ScatterDimensionNumbers(attribute)
        return cls(
            tuple(numbers.update_window_dims),
            tuple(numbers.inserted_window_dims),
            tuple(numbers.scattered_dims_to_operand_dims),
            int(numbers.index_vector_dim),
            tuple(numbers.input_batching_dims),
            tuple(numbers.scatter_indices_batching_dims),
        )

    def attribute(self, context: ir.Context) -> ir.Attribute:
        """StableHLO's attribute of these numbers."""
        return stablehlo.ScatterDimensionNumbers.get(
            update_window_dims=self.update_window_dims,
            inserted_window_dims=self.inserted_window_dims,
            input_batching_dims=self.input_batching_dims,
            scatter_indices_batching_dims=self.scatter_indices_batching_dims,
            scattered_dims_to_operand_dims=self.scatter_dims_to_operand_dims,
            index_vector_dim=self.index_vector_dim,
            context=context,
        )


def _make_tuples(numbers: object, names: Iterable[str]) -> None:
    """Coerce dimension numbers, given as any sequences of integers, to tuples."""
    for name in names:
        check = integer if name == "index_vector_dim" else integers
        object.__setattr__(numbers, name, check(name, getattr(numbers, name)))
