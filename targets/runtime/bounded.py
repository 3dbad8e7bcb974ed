"""Bounded dynamic dimensions: calls pad arrays to their bounds for machine code, and slice the results.

The program's sizes are s32 scalars behind the parameters and behind the results, as
`lowering/bounded/bounded.py` puts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError
from stablexla.targets.runtime._runtime import ArraySpec, CompiledFunction, GpuFunction
from stablexla.targets.runtime.arguments import fit, parameter_place, raise_wrong_count
from stablexla.targets.runtime.available_memory import copied

Array = npt.NDArray[Any]
Dimensions = tuple[int, ...]


# Allocates padded arrays; tests replace it by one that fills the padding, which no result may depend on.
_room = np.empty


class BoundedFunction:
    """A compiled function of arrays up to its bounds, whose results have their actual sizes.

    Args:
        function: the machine code.
        parameters, results: for each array its dynamic dimensions.
    """

    def __init__(
        self,
        function: CompiledFunction | GpuFunction,
        parameters: Sequence[Dimensions],
        results: Sequence[Dimensions],
    ) -> None:
        self._function, self._results = function, tuple(results)
        self._is_of_gpu = isinstance(function, GpuFunction)
        self._count = len(parameters)
        self._specs = function.parameters[: self._count]
        self._dynamic = [
            (index, spec, spec.shape, spec.dtype, dynamic)
            for index, (spec, dynamic) in enumerate(zip(self._specs, parameters, strict=True))
            if dynamic
        ]

    def execute(self, arguments: Sequence[object]) -> list[Array]:
        """Call the program, as `CompiledFunction.execute`.

        Raises:
            ExecutionError: arguments that do not fit the parameters.
        """
        return self.cut(self._function.execute(self.in_bounds(arguments)))

    def in_bounds(self, arguments: Sequence[object]) -> list[object]:
        """Return the machine code's arguments: arrays padded to their bounds, and the actual sizes.

        Raises:
            ExecutionError: arguments that do not fit the parameters.
        """
        if len(arguments) != self._count:
            raise_wrong_count(self._function.name, self._specs, len(arguments))
        if self._is_of_gpu:  # arrays are padded on the host
            arguments = [a.copy_to_host() if hasattr(a, "copy_to_host") else a for a in arguments]
        given, sizes = list(arguments), list[object]()
        for index, spec, bounds, dtype, dynamic in self._dynamic:
            array = arguments[index]
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != bounds:
                array = self._array(array, spec, dynamic, index)
            sizes += [array.shape[place] for place in dynamic]
            given[index] = array if array.shape == bounds else _in_bounds(array, bounds)
        return given + sizes

    def cut(self, made: Sequence[Array]) -> list[Array]:
        """Slice the machine code's results to their actual sizes."""
        found = iter(made[len(self._results) :])
        return [
            _cut(array, {place: int(next(found)) for place in dynamic}) if dynamic else array
            for array, dynamic in zip(made, self._results)
        ]

    def _array(self, value: object, spec: ArraySpec, dynamic: Dimensions, index: int) -> Array:
        """Return the value as an array, checked against the bounds."""
        given = getattr(value, "shape", None)
        if given is None and not isinstance(value, (bool, int, float, complex)):
            return fit(value, spec, self._function.name, index)
        shape = tuple(int(n) for n in given or ())
        if not is_within(shape, spec.shape, dynamic):
            sizes = ",".join(f"<={n}" if i in dynamic else str(n) for i, n in enumerate(spec.shape))
            raise ExecutionError(
                f"{self._function.name}: {parameter_place(index, spec.name)} takes {spec.dtype.name}[{sizes}], "
                f"but an array of the shape [{','.join(map(str, shape))}] came"
            )
        if type(value) is np.ndarray and value.dtype == spec.dtype:
            return value
        return fit(value, ArraySpec(spec.dtype, shape, spec.name), self._function.name, index)


def is_within(shape: Sequence[int], bounds: Sequence[int], dynamic: Sequence[int]) -> bool:
    """Return whether a shape is that of the bounds, or smaller in its dynamic dimensions."""
    return len(shape) == len(bounds) and all(
        n == bound or (n < bound and place in dynamic) for place, (n, bound) in enumerate(zip(shape, bounds))
    )


def _in_bounds(array: Array, bounds: Dimensions) -> Array:
    """Pad an array at the end to the full size, with unspecified elements."""
    size = prod(bounds) * array.dtype.itemsize
    room = copied(lambda: _room(bounds, array.dtype), size, "an argument at its bounds")
    room[tuple(map(slice, array.shape))] = array
    return room


def _cut(array: Array, sizes: dict[int, int]) -> Array:
    """Slice an array to the sizes, contiguous."""
    part = array[tuple(slice(sizes.get(place)) for place in range(array.ndim))]
    if part.flags.c_contiguous:
        return part
    return copied(lambda: np.ascontiguousarray(part), part.nbytes, "a result of its own size")
