"""The padding configuration of `pad`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stablexla.builder.checking import Rules, checking
from stablexla.dialects.lazy_dataclass import dataclass

__all__ = ["PaddingConfig", "PaddingConfigDimension"]


class PaddingConfigDimension(NamedTuple):
    """How one dimension is padded: values before it, behind it, and between neighbours."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass(frozen=True)
class PaddingConfig:
    """How each dimension is padded, as XLA's message of this name has it; a sequence of triples does as well.

    Attributes:
        dimensions: for each (edge_padding_low, edge_padding_high, interior_padding).

    Raises:
        ShapeError: what are not three integers for each dimension.

    >>> sx.PaddingConfig([(1, 0, 0), (-1, 2, 1)]).dimensions[1]
    PaddingConfigDimension(edge_padding_low=-1, edge_padding_high=2, interior_padding=1)
    """

    dimensions: Iterable[tuple[int, int, int]] = ()

    def __post_init__(self) -> None:
        with checking("PaddingConfig") as rule:
            given = rule.rows("dimensions", self.dimensions)
            rule("", all(len(row) == 3 for row in given), "dimensions must be of three numbers, (low, high, interior)")
        object.__setattr__(self, "dimensions", tuple(PaddingConfigDimension(*row) for row in given))


Given = PaddingConfig | Iterable[tuple[int, int, int]]


def checked_config(rule: Rules, given: Given, rank: int) -> list[PaddingConfigDimension]:
    """C2 and C3: how each of `rank` dimensions is padded."""
    name = "padding_config"
    config = rule.rows(name, given.dimensions if isinstance(given, PaddingConfig) else given, "C2")
    fits = len(config) == rank and all(len(entry) == 3 for entry in config)
    rule("C2", fits, f"{name} must have (low, high, interior) for each dimension of operand")
    for place, entry in enumerate(config):
        rule("C3", entry[2] >= 0, f"{name}: the interior padding of dimension {place} must not be negative")
    return [PaddingConfigDimension(*entry) for entry in config]


def padded(rule: Rules, place: int, size: int, by: PaddingConfigDimension) -> int:
    """C4: the size of a padded dimension."""
    low, high, interior = by
    made = size + max(size - 1, 0) * interior + low + high
    told = f"padding_config takes more from dimension {place} than there is: its size would be {made}"
    rule("C4", made >= 0, told)
    return made
