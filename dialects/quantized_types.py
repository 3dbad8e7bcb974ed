"""Types of the quant dialect, parsed from their text: jaxlib has no Python classes for them."""

from __future__ import annotations

import functools
import re
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass

_UNIFORM = re.compile(
    r"!quant\.uniform<(?P<storage>[iu]\d+)(?:<(?P<low>-?\d+):(?P<high>-?\d+)>)?:(?P<expressed>\w+)(?::(?P<axis>\d+))?,\s*"
    r"(?P<parameters>\{[^{}]*\}|[^{}]*)>"
)


@dataclass(frozen=True)
class QuantizedType:
    """A uniform quantized type: an integer q of `low` to `high` stands for (q - zero point) * scale.

    Attributes:
        storage: the integers' type as StableHLO spells it: i8, ui8 ...
        low, high: the smallest and the largest integer.
        expressed: the type of the real numbers: f32 ...
        axis: the quantized dimension, with a scale and a zero point per index; None for per-tensor quantization.
        scales, zero_points: one of each, or one per index of the axis.
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
        """Width of the storage type."""
        return int(self.storage.lstrip("ui"))


def is_quantized(type_: Any) -> bool:
    """Whether a type is an array of quantized elements."""
    return isinstance(type_, ir.RankedTensorType) and _is_quant(type_.element_type)


def _is_quant(element: Any) -> bool:
    # Fast path: most types have a Python class, and those are not quantized.
    return type(element) is ir.Type and str(element).startswith("!quant.")


def storage_of(element: Any) -> Any:
    """Return the storage integer type of a quantized element type; any other element type as it is."""
    if not _is_quant(element):
        return element
    return ir.Type.parse(quantized_type(element).storage, element.context)


def quantized_type(element: Any) -> QuantizedType:
    """Parse a quantized element type.

    Raises:
        UnsupportedError: it is not uniform, by tensor or by axis.
    """
    return _read(str(element))


@functools.lru_cache(maxsize=256)
def _read(text: str) -> QuantizedType:
    """Parse the type's text.

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
