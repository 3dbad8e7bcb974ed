"""The rules that gather and scatter have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar, cast

from stablexla.builder.checking import Rules
from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape

Numbers = TypeVar("Numbers", GatherDimensionNumbers, ScatterDimensionNumbers)


def chosen_numbers(
    rule: Rules, kind: type[Numbers], whole: object, single: Mapping[str, Any], operand: Shape, indices: Shape
) -> Numbers:
    """The dimension numbers that were given as one value, or one by one."""
    given = kind.__name__
    if any(isinstance(value, kind) for value in single.values()):
        rule.broken("", f"{given} are given in another place than dimension_numbers", f"dimension_numbers={given}(...)")
    if whole is not None:
        rule("", isinstance(whole, kind), f"dimension_numbers must be {given}, not {told(whole)}")
        twice = [name for name, value in single.items() if value is not None and value != ()]
        rule("", not twice, f"{', '.join(twice)} and dimension_numbers must not both be given")
        return cast("Numbers", whole)
    values: dict[str, Any] = {}
    for name, value in single.items():
        # Dimensions that slices drop are optional; all others are required.
        value = () if value is None and name in ("collapsed_slice_dims", "inserted_window_dims") else value
        rule("", value is not None, f"{name} must be given", _of_rows(kind, operand, indices))
        values[name] = rule.integer(name, value) if name == "index_vector_dim" else rule.integers(name, value)
    return kind(**values)


def _of_rows(kind: type[Numbers], operand: Shape, indices: Shape) -> str:
    """How rows of the operand are taken or updated, each by one number."""
    window = tuple(indices.rank + i for i in range(operand.rank - 1))
    if kind is GatherDimensionNumbers:
        start, sizes = "sx.gather(operand, start_indices", f", {(1, *operand.dimensions[1:])}"
    else:
        start, sizes = "sx.scatter(operands, scatter_indices, updates, update_computation", ""
    return f"{start}, {indices.rank}, {window}{sizes}, (0,), (0,)), where a number stands for a row"


@dataclass(frozen=True)
class NamedShape:
    """An array's shape, and its name in errors."""

    name: str
    value: Shape


@dataclass(frozen=True)
class NamedDimensions:
    """A list of dimensions, and its name in errors."""

    name: str
    value: tuple[int, ...]


def named_dimensions(rule: Rules, name: str, given: object) -> NamedDimensions:
    return NamedDimensions(name, rule.integers(name, given))


@dataclass(frozen=True)
class IndexVectors:
    """The layout of index vectors in an array of indices, and how they and batching dimensions address an operand."""

    rule: Rules
    operand: NamedShape
    indices: NamedShape
    vector_dim: int
    map: NamedDimensions
    batching: NamedDimensions
    indices_batching: NamedDimensions

    @property
    def sizes(self) -> list[int]:
        """The sizes of the indices' dimensions, without that of the vectors."""
        return [size for place, size in enumerate(self.indices.value.dimensions) if place != self.vector_dim]

    def check_vectors(self, place_rule: str, length_rule: str) -> None:
        """The vectors' dimension is one of the indices', or their rank; their length is that of the map."""
        shape = self.indices.value
        self.rule(
            place_rule,
            0 <= self.vector_dim <= shape.rank,
            f"index_vector_dim must be from 0 to {shape.rank}, the rank of {self.indices.name}, and is "
            f"{self.vector_dim}",
        )
        length = shape.dimensions[self.vector_dim] if self.vector_dim < shape.rank else 1
        self.rule(
            length_rule,
            len(self.map.value) == length,
            f"{self.map.name} has {len(self.map.value)} entries, and index vectors have {length} numbers",
        )

    def check_batching(self, rules: tuple[str, str, str, str, str, str, str]) -> None:
        """Batching dimensions of operand and indices are as many and of the same sizes, and are there."""
        ascend, in_operand, twice, in_indices, no_vector, count, sizes = rules
        batching, by = self.batching, self.indices_batching
        self.rule(ascend, ascends(batching.value), f"{batching.name} must ascend")
        check_range(self.rule, in_operand, batching.name, batching.value, self.operand.value.rank, self.operand.name)
        self.rule(twice, differ(by.value), f"{by.name} must not have a dimension twice")
        check_range(self.rule, in_indices, by.name, by.value, self.indices.value.rank, self.indices.name)
        self.rule(no_vector, self.vector_dim not in by.value, f"index_vector_dim must not be in {by.name}")
        counts = f"{batching.name} has {len(batching.value)} entries, {by.name} has {len(by.value)}"
        self.rule(count, len(batching.value) == len(by.value), counts)
        for a, b in zip(batching.value, by.value):
            m, n = self.operand.value.dimensions[a], self.indices.value.dimensions[b]
            pretty = f"batching dimension {a} of {self.operand.name} has size {m}, but {b} of {self.indices.name} {n}"
            self.rule(sizes, m == n, pretty)

    def check_map(self, twice: str, in_operand: str) -> None:
        """No dimension of the operand is meant twice."""
        pretty = f"{self.map.name} and {self.batching.name} must not have a dimension twice"
        self.rule(twice, differ(self.map.value + self.batching.value), pretty)
        check_range(self.rule, in_operand, self.map.name, self.map.value, self.operand.value.rank, self.operand.name)


def check_range(rule: Rules, number: str, name: str, chosen: Sequence[int], rank: int, of: str) -> None:
    for place in chosen:
        rule.place(number, place, rank, f"{name}: {place} is no dimension of {of}, of rank {rank}")


def ascends(chosen: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(chosen))


def differ(chosen: Sequence[int]) -> bool:
    return len(set(chosen)) == len(chosen)
