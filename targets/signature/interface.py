"""Signature of a program: its name, and the types and names of its parameters and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape
from stablexla.dialects.tensor_types import TensorType
from stablexla.targets.runtime import ArraySpec


def argument_names(names: Sequence[str]) -> list[str]:
    """Return the names that arguments are given by: the parameters', and arg0, arg1 ... as MLIR prints those without.

    They are all arg0, arg1 ... where two parameters have the same name.

    >>> argument_names(["x", ""]), argument_names(["x", "x"])
    (['x', 'arg1'], ['arg0', 'arg1'])
    """
    known = [name or f"arg{i}" for i, name in enumerate(names)]
    return known if len(set(known)) == len(known) else [f"arg{i}" for i in range(len(names))]


@dataclass(frozen=True)
class Signature:
    """A program's name, and the type and name of each parameter and result.

    Attributes:
        parameters, results: the types; where extents are known only at run time, with their bounds.
        dynamic_parameters, dynamic_results: the dynamic dimensions of each; `()` when no array has any.
        num_replicas, num_partitions: their product is the number of devices that run it at the same time.
    """

    name: str
    parameters: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    parameter_names: tuple[str, ...] = ()
    dynamic_parameters: tuple[tuple[int, ...], ...] = ()
    dynamic_results: tuple[tuple[int, ...], ...] = ()
    num_replicas: int = 1
    num_partitions: int = 1
    result_names: tuple[str, ...] = ()

    @property
    def num_devices(self) -> int:
        """Number of devices that run it at the same time."""
        return self.num_replicas * self.num_partitions

    @property
    def is_static(self) -> bool:
        """Whether every extent is known."""
        return not any(self.dynamic_parameters) and not any(self.dynamic_results)

    def parameter_specs(self) -> list[ArraySpec]:
        """Return the parameters for the native runtime: the arrays, then the sizes of all dynamic dimensions."""
        names = self.parameter_names or ("",) * len(self.parameters)
        specs = [_spec(t, name) for t, name in zip(self.parameters, names, strict=True)]
        return specs + _sizes(self.dynamic_parameters)

    def result_specs(self) -> list[ArraySpec]:
        """Return the results for the native runtime: the arrays, then the sizes of all dynamic dimensions."""
        names = self.result_names or ("",) * len(self.results)
        return [_spec(t, name) for t, name in zip(self.results, names, strict=True)] + _sizes(self.dynamic_results)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, for a file."""
        return {
            "name": self.name,
            "parameters": [str(t) for t in self.parameters],
            "results": [str(t) for t in self.results],
            "parameter_names": self.parameter_names,
            "dynamic_parameters": self.dynamic_parameters,
            "dynamic_results": self.dynamic_results,
            "num_replicas": self.num_replicas,
            "num_partitions": self.num_partitions,
            "result_names": self.result_names,
        }

    @staticmethod
    def of_plain(values: Mapping[str, Any]) -> Signature:
        """Return what `plain` gave.

        Raises:
            KeyError, TypeError, ValueError, StablexlaError: it is something else.
        """
        if not isinstance(values["name"], str):
            raise TypeError(f"a program's name is {values['name']!r}")
        return Signature(
            values["name"],
            tuple(map(_type, values["parameters"])),
            tuple(map(_type, values["results"])),
            tuple(values["parameter_names"]),
            tuple(map(tuple, values["dynamic_parameters"])),
            tuple(map(tuple, values["dynamic_results"])),
            int(values["num_replicas"]),
            int(values["num_partitions"]),
            tuple(values.get("result_names", ())),
        )

    def __str__(self) -> str:
        parameters = ", ".join(_texts(self.parameters, self.dynamic_parameters))
        results = _texts(self.results, self.dynamic_results)
        named = zip(results, self.result_names or ("",) * len(results), strict=True)
        return f"({parameters}) -> ({', '.join(f'{name}: {text}' if name else text for text, name in named)})"


def _type(text: str) -> TensorType:
    shape = Shape.parse(text)
    return TensorType(BY_NAME[shape.element_type.name], shape.dimensions)


def _sizes(dynamic: tuple[tuple[int, ...], ...]) -> list[ArraySpec]:
    return [_spec(TensorType(BY_NAME["s32"], ()), "") for dimensions in dynamic for _ in dimensions]


def _texts(types: tuple[TensorType, ...], dynamic: tuple[tuple[int, ...], ...]) -> list[str]:
    """Format the types as XLA does: f32[<=8,3]."""
    return [
        f"{t.element}[{','.join(f'<={n}' if i in places else str(n) for i, n in enumerate(t.shape))}]"
        for t, places in zip(types, dynamic or ((),) * len(types), strict=True)
    ]


def _spec(type_: TensorType, name: str) -> ArraySpec:
    try:
        return ArraySpec(type_.element.dtype, type_.shape, name)
    except ValueError as error:  # it is numpy's limit on ranks
        raise UnsupportedError(
            f"an array of rank {type_.rank} as a parameter or result: {error}", hint="a reshape inside of the program"
        ) from None
