"""The types of the quant dialect, read from their text: jaxlib has no Python classes for them."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError

_UNIFORM = re.compile(
    r"!quant\.uniform<(?P<storage>[iu]\d+)(?:<(?P<low>-?\d+):(?P<high>-?\d+)>)?:(?P<expressed>\w+)(?::(?P<axis>\d+))?,\s*"
    r"(?P<parameters>\{[^{}]*\}|[^{}]*)>"
)


@dataclass(frozen=True)
class QuantizedType:
    """An integer q of `low` to `high` stands for (q - zero point) * scale.

    Attributes:
        storage: the integers' type as StableHLO spells it: i8, ui8 ...
        low, high: the smallest and the largest integer.
        expressed: the type of what it stands for: f32 ...
        axis: along which there is a scale and a zero point for each index; None when there is one of each.
        scales, zero_points: those.
    """

    storage: str
    low: int
    high: int
    expressed: str
    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]

    @property
    def parameters(self) -> tuple[object, ...]:
        """All but the axis."""
        return (self.storage, self.low, self.high, self.expressed, self.scales, self.zero_points)

    @property
    def bits(self) -> int:
        """Of the storage type."""
        return int(self.storage.lstrip("ui"))


def is_quantized(type_: Any) -> bool:
    """Whether a type is that of an array of quantised elements."""
    return isinstance(type_, ir.RankedTensorType) and _is_quant(type_.element_type)


def _is_quant(element: Any) -> bool:
    # Types that Python has a class for are none of them, and most types are of these.
    return type(element) is ir.Type and str(element).startswith("!quant.")


def storage_of(element: Any) -> Any:
    """The integer type of a quantised element type; any other element type as it is."""
    if not _is_quant(element):
        return element
    return ir.Type.parse(quantized_type(element).storage, element.context)


def quantized_type(element: Any) -> QuantizedType:
    """Reads a quantised element type.

    Raises:
        UnsupportedError: it is not uniform, by tensor or by axis.
    """
    return _read(str(element))


@functools.lru_cache(maxsize=256)
def _read(text: str) -> QuantizedType:
    """The type of that text.

    >>> _read("!quant.uniform<u8<1:255>:f32:1, {5.000000e-01:128,2.500000e-01}>").zero_points
    (128, 0)
    """
    match = _UNIFORM.fullmatch(text)
    if match is None:
        raise UnsupportedError(f"the type {text} is not there yet: quantised types are uniform, by tensor or by axis")
    unsigned, bits = match["storage"][0] == "u", int(match["storage"][1:])
    low = int(match["low"]) if match["low"] else 0 if unsigned else -(1 << (bits - 1))
    high = int(match["high"]) if match["high"] else (1 << (bits - (not unsigned))) - 1
    pairs = [word.strip().partition(":") for word in match["parameters"].strip("{}").split(",")]
    return QuantizedType(
        f"ui{bits}" if unsigned else f"i{bits}",
        low,
        high,
        match["expressed"],
        int(match["axis"]) if match["axis"] else None,
        tuple(float(scale) for scale, _, _ in pairs),
        tuple(int(zero or 0) for _, _, zero in pairs),
    )
