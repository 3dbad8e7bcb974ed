"""What a program takes and gives: its name, the types and the names of its arrays."""

from __future__ import annotations

from dataclasses import dataclass

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.tensor_types import TensorType
from stablexla.targets.runtime import ArraySpec


@dataclass(frozen=True)
class Signature:
    """A program's name, and the type and name of each parameter and result.

    Attributes:
        parameters, results: the types; where extents are known only at run time, with their bounds.
        dynamic_parameters, dynamic_results: of each its dynamic dimensions; `()` when no array has any.
        num_replicas, num_partitions: how many devices run it at the same time: the one times the other.
    """

    name: str
    parameters: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    parameter_names: tuple[str, ...] = ()
    dynamic_parameters: tuple[tuple[int, ...], ...] = ()
    dynamic_results: tuple[tuple[int, ...], ...] = ()
    num_replicas: int = 1
    num_partitions: int = 1

    @property
    def num_devices(self) -> int:
        """How many devices run it at the same time."""
        return self.num_replicas * self.num_partitions

    @property
    def is_static(self) -> bool:
        """Every extent is known."""
        return not any(self.dynamic_parameters) and not any(self.dynamic_results)

    def parameter_specs(self) -> list[ArraySpec]:
        """The parameters for the native runtime: the arrays, and the sizes of all dynamic dimensions."""
        names = self.parameter_names or ("",) * len(self.parameters)
        specs = [_spec(t, name) for t, name in zip(self.parameters, names, strict=True)]
        return specs + _sizes(self.dynamic_parameters)

    def result_specs(self) -> list[ArraySpec]:
        """The results for the native runtime, with the sizes of all dynamic dimensions behind them."""
        return [_spec(t, "") for t in self.results] + _sizes(self.dynamic_results)

    def __str__(self) -> str:
        parameters = ", ".join(_texts(self.parameters, self.dynamic_parameters))
        return f"({parameters}) -> ({', '.join(_texts(self.results, self.dynamic_results))})"


def _sizes(dynamic: tuple[tuple[int, ...], ...]) -> list[ArraySpec]:
    return [_spec(TensorType(BY_NAME["s32"], ()), "") for dimensions in dynamic for _ in dimensions]


def _texts(types: tuple[TensorType, ...], dynamic: tuple[tuple[int, ...], ...]) -> list[str]:
    """The types as XLA writes them: f32[<=8,3]."""
    return [
        f"{t.element}[{','.join(f'<={n}' if i in places else str(n) for i, n in enumerate(t.shape))}]"
        for t, places in zip(types, dynamic or ((),) * len(types), strict=True)
    ]


def _spec(type_: TensorType, name: str) -> ArraySpec:
    return ArraySpec(type_.element.dtype, type_.shape, name)
