"""Matching of what programs dequantize and quantize themselves: bytes and the numbers that they stand for."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.constants import constant_array
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.quantized_types import QuantizedType
from stablexla.lowering.support.operations import defining, only_user

BOUNDS = {"i8": (-128, 127), "ui8": (0, 255)}
_WIDER = ("i16", "i32")
_MOST_OF_ZERO_POINT = 1 << 14  # of differences that 16 bits hold
# Within these the product of an integer or a sum with one of two scales stays within the numbers of f32.
_SCALES = (1e-28, 1e28)


@dataclass(frozen=True)
class Scales:
    """Factors of an array's elements.

    Attributes:
        dims: dimensions of the array by which they are indexed.
        numbers: for each place along these dimensions, if they are known.
        value: an array of them, if they are not; its other dimensions have one place.
    """

    dims: tuple[int, ...]
    numbers: np.ndarray | None
    value: Any = None

    def times(self, made: Any) -> Any:
        """Emit the product of an array with its scales."""
        if self.numbers is not None:
            value = hlo.array(np.array(self.numbers, order="C"))
        else:
            value = hlo.reshape(self.value, [n for n in self.value.type.shape if n > 1])
        return hlo.elementwise("multiply", made, hlo.broadcast(value, made.type.shape, self.dims))


@dataclass(frozen=True)
class Dequantized:
    """An array of floats that are dequantized bytes.

    Attributes:
        bytes: the array of bytes.
        moves: transposes and reshapes that take it to the floats' shape, the first one first.
        zero_point: that of all elements.
        scales: by dimensions of the floats.
    """

    bytes: Any
    moves: tuple[Any, ...]
    zero_point: int
    scales: tuple[Scales, ...]

    @staticmethod
    def of(value: Any) -> Dequantized | None:
        """Match an array of dequantized bytes, which scales, a zero point, a conversion and moves lead to."""
        if str(value.type.element_type) != "f32" or not value.type.has_static_shape or 0 in value.type.shape:
            return None
        scales: list[Scales] = []
        moves: list[Any] = []
        zero_point: int | None = None
        places: list[int] | None = list(
            range(value.type.rank)
        )  # of dimensions in the floats' shape; None after a reshape
        while (maker := defining(value)) is not None:
            kind, element = maker.name.removeprefix("stablehlo."), str(value.type.element_type)
            if kind == "multiply" and element == "f32" and zero_point is None:
                found = [(each, n) for n, x in enumerate(maker.operands) if (each := _scales(x, places)) is not None]
                if not found:
                    return None
                each, at = min(found, key=lambda pair: pair[0].numbers is None)  # rather one that is known
                scales.append(each)
                value = maker.operands[1 - at]
            elif kind == "subtract" and zero_point is None:
                zero_point = _zero_point(maker.operands[1])
                if zero_point is None:
                    return None
                value = maker.operands[0]
            elif kind in ("transpose", "reshape"):
                moves.insert(0, maker)
                value, before = maker.operands[0], places
                places = None
                if kind == "transpose" and before is not None:
                    permutation = integers(maker.attributes["permutation"])
                    places = [before[permutation.index(d)] for d in range(len(before))]
            elif kind == "convert" and str(maker.operands[0].type.element_type) in BOUNDS:
                return Dequantized(maker.operands[0], tuple(moves), zero_point or 0, tuple(scales)) if scales else None
            elif kind == "convert" and str(maker.operands[0].type.element_type) in _WIDER:
                value = maker.operands[0]
            else:
                return None
        return None

    def integers(self) -> Any:
        """Emit the bytes in the floats' shape."""
        value = self.bytes
        for op in self.moves:
            type_ = hlo.tensor(value.type, op.results[0].type.shape)
            value = hlo.emit(op.name, [value], [type_], {name: op.attributes[name] for name in op.attributes})
        return value

    def numbers(self, value: Any) -> Any:
        """Emit what bytes of an array with one scale stand for."""
        made = hlo.convert(value, ir.F32Type.get())
        if self.zero_point:
            made = hlo.elementwise("subtract", made, hlo.constant(made.type, float(self.zero_point)))
        return self.scales[0].times(made)

    @property
    def type(self) -> QuantizedType:
        """The quantized type of the bytes, with a scale of 1."""
        storage = str(self.bytes.type.element_type)
        return QuantizedType(storage, *BOUNDS[storage], "f32", None, (1.0,), (self.zero_point,))


@dataclass(frozen=True)
class Quantization:
    """How a program makes bytes of an array: round(x * factor) + zero point, within the bounds of the type.

    Attributes:
        scaled: the operation that multiplies the array by a number, or divides it.
        side: which of its operands the array is.
        number: the number.
        alone: whether nothing else reads what is computed on the way.
    """

    storage: str
    scaled: Any
    side: int
    number: float
    zero_point: int
    alone: bool

    @property
    def factor(self) -> float:
        return self.number if self.scaled.name == "stablehlo.multiply" else 1 / self.number

    @staticmethod
    def by(op: Any) -> Quantization | None:
        """Match the conversion to bytes."""
        storage, value, zero_point = str(op.results[0].type.element_type), op.operands[0], 0
        if storage not in BOUNDS or str(value.type.element_type) != "f32":
            return None
        alone = only_user(value) is not None
        if (clamp := made_by(value, "clamp")) is not None:
            if [splat_of(clamp.operands[n]) for n in (0, 2)] != list(map(float, BOUNDS[storage])):
                return None
            value = clamp.operands[1]
            alone = alone and only_user(value) is not None
        if (added := made_by(value, "add")) is not None:
            at = known_side(added)
            found, value = _zero_point(added.operands[at]), added.operands[1 - at]
            if found is None:
                return None
            zero_point, alone = found, alone and only_user(value) is not None
        rounded = made_by(value, "round_nearest_even")
        scaled = rounded and made_by(rounded.operands[0], "multiply", "divide")
        if not scaled:
            return None
        side = 1 if scaled.name == "stablehlo.divide" else known_side(scaled)
        number = splat_of(scaled.operands[side])
        if number is None or not _SCALES[0] <= number <= _SCALES[1]:
            return None
        alone = alone and only_user(rounded.operands[0]) is not None
        return Quantization(storage, scaled, 1 - side, number, zero_point, alone)

    def of(self, number: float) -> float:
        """Return the integer of a number, computed as the program does, before it is held within the type's bounds."""
        x, y = np.float32(number), np.float32(self.number)
        with np.errstate(over="ignore"):
            made = np.rint(x * y if self.scaled.name == "stablehlo.multiply" else x / y)
        return float(made) + self.zero_point

    def reaches(self, number: float | None, side: int) -> bool:
        """Whether the integer of a bound, the lower one or the upper one, is that of the type or beyond."""
        if number is None:
            return False
        bound = BOUNDS[self.storage][side]
        return self.of(number) <= bound if side == 0 else self.of(number) >= bound


# --- matching ---------------------------------------------------------------------------------------------------------


def _scales(value: Any, places: list[int] | None) -> Scales | None:
    """Match numbers that are spread over an array whose dimensions have these places."""
    number, maker = splat_of(value), made_by(value, "broadcast_in_dim")
    if number is not None:
        return Scales((), np.array(number, np.float32)) if _are_ordinary(np.array(number)) else None
    if maker is None:
        return None
    source, dims = maker.operands[0], integers(maker.attributes["broadcast_dimensions"])
    kept = [n for n, extent in enumerate(source.type.shape) if extent > 1]
    if any(source.type.shape[n] != value.type.shape[dims[n]] for n in kept) or (kept and places is None):
        return None
    along = tuple(places[dims[n]] for n in kept) if places is not None else ()
    if list(along) != sorted(along):
        return None
    numbers = _numbers(source)
    if numbers is None:
        return Scales(along, None, source)
    return Scales(along, numbers.reshape([n for n in numbers.shape if n > 1])) if _are_ordinary(numbers) else None


def _are_ordinary(numbers: np.ndarray) -> bool:
    return bool(((np.abs(numbers) >= _SCALES[0]) & (np.abs(numbers) <= _SCALES[1])).all())


def made_by(value: Any, *names: str) -> Any:
    """Return the operation that makes an array, if it is one of these."""
    maker = defining(value)
    return maker if maker is not None and maker.name.removeprefix("stablehlo.") in names else None


def known_side(op: Any) -> int:
    """Return which of two operands is one known number; the second one where none is."""
    return 0 if splat_of(op.operands[1]) is None and splat_of(op.operands[0]) is not None else 1


def _zero_point(value: Any) -> int | None:
    number = splat_of(value)
    return int(number) if number is not None and abs(number) < _MOST_OF_ZERO_POINT and number % 1 == 0 else None


def splat_of(value: Any) -> float | None:
    """Return the number that all elements of an array are, if it is known."""
    while (maker := made_by(value, "broadcast_in_dim", "reshape")) is not None:
        value = maker.operands[0]
    numbers = _numbers(value)
    if numbers is None or not numbers.size or numbers.dtype.kind not in "iufV":
        return None
    return float(numbers.flat[0]) if (numbers == numbers.flat[0]).all() else None


def _numbers(value: Any) -> np.ndarray | None:
    """Return the numbers of a constant, maybe in another shape; None for what is none."""
    reshape = made_by(value, "reshape")
    numbers = constant_array(value) if reshape is None else _numbers(reshape.operands[0])
    return None if numbers is None else numbers.reshape(value.type.shape)
