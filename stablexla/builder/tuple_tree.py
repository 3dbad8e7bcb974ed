"""The tuples of a program's parameters and result, flattened for machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.shapes import Shape

if TYPE_CHECKING:
    from stablexla.builder.computation import XlaComputation

Array = npt.NDArray[Any]


class TupleTree:
    """The mapping from nested arguments to arrays, and from result arrays to tuples."""

    def __init__(self, name: str, parameters: Sequence[Shape], result: Shape) -> None:
        self._name, self._parameters, self._result = name, tuple(parameters), result

    @staticmethod
    def of(computation: XlaComputation | None) -> TupleTree | None:
        """Return None when there are only leaves: arrays, or one flat tuple of several as the result."""
        if computation is None:
            return None
        result = computation.result_shape.without_tokens()
        parameters = [shape.without_tokens() for shape in computation.parameter_shapes if not shape.is_token]
        flat = not result.is_tuple or (
            len(result.tuple_shapes) != 1 and not any(s.is_tuple for s in result.tuple_shapes)
        )
        if flat and not any(s.is_tuple for s in parameters):
            return None
        return TupleTree(computation.name, parameters, result)

    @staticmethod
    def parse(name: str, parameters: Sequence[str], result: str) -> TupleTree:
        """Rebuild the value from `texts`."""
        return TupleTree(name, [Shape.parse(text) for text in parameters], Shape.parse(result))

    def texts(self) -> tuple[str, list[str], str]:
        """Return the program's name, and the shapes of its parameters and of its result, as texts."""
        return self._name, list(map(str, self._parameters)), str(self._result)

    def arguments(self, given: Sequence[object]) -> list[object]:
        """Return the leaves of the arguments; they may be leaves already."""
        leaves = sum(s.leaf_count for s in self._parameters)
        if len(given) == leaves and not any(isinstance(a, (tuple, list)) for a in given):
            return list(given)
        if len(given) != len(self._parameters):
            takes = f"{len(self._parameters)} argument" + ("s" if len(self._parameters) != 1 else "")
            raise ExecutionError(f"{self._name}: takes {takes}, but {len(given)} came")
        return [
            leaf
            for i, (argument, shape) in enumerate(zip(given, self._parameters, strict=True))
            for leaf in self._leaves(argument, shape, f"parameter {i}")
        ]

    def _leaves(self, argument: object, shape: Shape, place: str) -> list[object]:
        if not shape.is_tuple:
            return [argument]
        parts = shape.tuple_shapes
        if not isinstance(argument, (tuple, list)) or len(argument) != len(parts):
            came = f"a {type(argument).__name__}"
            if isinstance(argument, (tuple, list)):
                came += f" of length {len(argument)}"
            raise ExecutionError(f"{self._name}: {place} takes a tuple {shape}, but {came} came")
        return [
            leaf
            for i, (own, part) in enumerate(zip(argument, parts, strict=True))
            for leaf in self._leaves(own, part, f"{place}[{i}]")
        ]

    def result(self, leaves: Sequence[Array]) -> Any:
        """Return the result in the form of its shape."""
        return self._result.nested(leaves)
