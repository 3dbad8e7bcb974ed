"""Pass that sums integers in products of numbers that a program dequantizes itself, as PyTorch's and ONNX's do.

Such programs hold bytes, make floats of them, `(q - zero point) * scale`, and multiply these in f32. The products of
the bytes are summed instead, exactly and in a quarter of the instructions, and the sum is scaled once
(docs/decisions/0066-sums-of-dequantized-integers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.constants import read_constant
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.quantized_types import QuantizedType
from stablexla.lowering.support.operations import defining, only_user
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.imports.quantized.products import EXACT, Factor, factors, integer_sum
from stablexla.targets.stablehlo.inlining import operations_of

_BOUNDS = {"i8": (-128, 127), "ui8": (0, 255)}
_WIDER = ("i16", "i32")
_MOST_OF_ZERO_POINT = 1 << 14  # of differences that 16 bits hold
_SAME = 1e-4  # by so much scales may differ: 255 * scale / scale' rounds to the integer that it was
# Within these the product of an integer or a sum with one of two scales stays within the numbers of f32.
_SCALES = (1e-28, 1e28)


@dataclass(frozen=True)
class _Scales:
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
class _Dequantized:
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
    scales: tuple[_Scales, ...]

    def integers(self) -> Any:
        """Emit the bytes in the floats' shape."""
        value = self.bytes
        for op in self.moves:
            type_ = hlo.tensor(value.type, op.results[0].type.shape)
            value = hlo.emit(op.name, [value], [type_], {name: op.attributes[name] for name in op.attributes})
        return value

    @property
    def type(self) -> QuantizedType:
        """What an integer stands for, but for the scales."""
        storage = str(self.bytes.type.element_type)
        return QuantizedType(storage, *_BOUNDS[storage], "f32", None, (1.0,), (self.zero_point,))


@module_pass(
    "stablexla-sum-integers",
    "computes with bytes where a program dequantises them: products, convolutions and max pooling",
    side="stablehlo",
    acts_on=lambda held: held.has("stablehlo.convert") and held.has("stablehlo.multiply"),
)
def sum_integers(module: ir.Module) -> None:
    """Rewrite operations in f32 on arrays of dequantized bytes."""
    for name, rewrite in _REWRITES.items():
        for op in operations_of(module, name):
            made = rewrite(op)
            if made is not None:
                op.results[0].replace_all_uses_with(made)
                _erase_unread(op)


def _erase_unread(op: Any) -> None:
    """Erase an operation that nobody reads, and what only it has read."""
    pending = [op]
    while pending:
        op = pending.pop()
        if op.name == "func.func" or any(len(list(result.uses)) for result in op.results):
            continue
        pending = [each for each in pending if each != op]
        makers = {maker: None for value in op.operands if (maker := defining(value)) is not None}
        erase(op)
        pending += makers


# --- products ---------------------------------------------------------------------------------------------------------


def _product(op: Any) -> Any:
    """Emit a product in f32 of dequantized bytes from a sum of integers."""
    result = op.results[0]
    left, right = (_dequantized(value) for value in op.operands)
    if left is None or right is None or str(result.type.element_type) != "f32":
        return None
    if op.name != EXACT[0] and any(scales.dims for scales in left.scales):
        return None
    with op.location, ir.InsertionPoint(op):
        sides = factors(op, [left.integers(), right.integers()], [left.type, right.type])
        placed = [_placed(each, side) for of, side in zip((left, right), sides, strict=True) for each in of.scales]
        scales = [each for each in placed if each is not None]
        made = integer_sum(op, *sides, result.type) if len(scales) == len(placed) else None
        for each in _merged(scales) if made is not None else ():
            made = each.times(made)
    return made


def _placed(scales: _Scales, side: Factor) -> _Scales | None:
    """Return scales by dimensions of the result; None where they differ within a sum."""
    places = [place for dim in scales.dims if (place := side.place(dim)) is not None]
    return replace(scales, dims=tuple(places)) if len(places) == len(scales.dims) else None


def _merged(scales: Iterable[_Scales]) -> list[_Scales]:
    """Return known scales as one product, as far as its numbers are normal, and the others as they are."""
    made: list[_Scales] = []
    for each in scales:
        last = made[-1] if made else None
        if last is not None and last.numbers is not None and each.numbers is not None:
            dims = last.dims or each.dims
            with np.errstate(all="ignore"):
                numbers = last.numbers * each.numbers if each.dims in ((), dims) else np.zeros(())
            if (np.abs(numbers) >= np.finfo(np.float32).tiny).all() and np.isfinite(numbers).all():
                made[-1] = _Scales(dims, numbers)
                continue
        made.append(each)
    return made


# --- max pooling ------------------------------------------------------------------------------------------------------


def _max_pool(op: Any) -> Any:
    """Emit max pooling of dequantized bytes, whose order is that of the bytes."""
    if len(op.operands) != 2 or not _takes_maxima(op) or not _every_window_has_an_element(op):
        return None
    given, start = _dequantized(op.operands[0]), _splat(op.operands[1])
    if given is None or start is None or start != -np.inf or len(given.scales) != 1:
        return None
    (scales,) = given.scales
    if scales.dims or scales.numbers is None or not scales.numbers > 0:
        return None
    with op.location, ir.InsertionPoint(op):
        value = given.integers()
        lowest = hlo.constant(hlo.tensor(value.type, []), given.type.low)
        attributes = {name: op.attributes[name] for name in op.attributes}
        type_ = hlo.tensor(value.type, op.results[0].type.shape)
        made = hlo.operation(op.name, [value, lowest], [type_], attributes, regions=1)
        hlo.combiner(made, value.type, lambda this, that: hlo.elementwise("maximum", this, that))
        return _numbers_of(made.results[0], given, op.results[0].type)


def _takes_maxima(op: Any) -> bool:
    largest, *rest = [inner.operation for inner in op.regions[0].blocks[0].operations]
    if largest.name != "stablehlo.maximum" or len(rest) != 1 or list(rest[0].operands) != list(largest.results):
        return False
    return set(largest.operands) == set(op.regions[0].blocks[0].arguments)


def _every_window_has_an_element(op: Any) -> bool:
    """Whether every window has an element of the array: none lies in the padding as a whole."""
    window, shape = integers(op.attributes["window_dimensions"]), op.operands[0].type.shape
    strides, base, dilated = (
        integers(op.attributes[name]) if name in op.attributes else (1,) * len(window)
        for name in ("window_strides", "base_dilations", "window_dilations")
    )
    low = integers(op.attributes["padding"])[::2] if "padding" in op.attributes else (0,) * len(window)
    last = [(n - 1) * stride - before for n, stride, before in zip(op.results[0].type.shape, strides, low, strict=True)]
    inside = all(0 <= a < n and b < m for a, n, b, m in zip(low, window, last, shape, strict=True))
    return inside and set(base) == {1} and set(dilated) == {1}


def _numbers_of(value: Any, given: _Dequantized, type_: Any) -> Any:
    """Emit what bytes of an array with one scale stand for."""
    made = hlo.convert(value, type_.element_type)
    if given.zero_point:
        made = hlo.elementwise("subtract", made, hlo.constant(made.type, float(given.zero_point)))
    return given.scales[0].times(made)


# --- quantization -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Quantization:
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
    def by(op: Any) -> _Quantization | None:
        """Match the conversion to bytes."""
        storage, value, zero_point = str(op.results[0].type.element_type), op.operands[0], 0
        if storage not in _BOUNDS or str(value.type.element_type) != "f32":
            return None
        alone = only_user(value) is not None
        if (clamp := _made_by(value, "clamp")) is not None:
            if [_splat(clamp.operands[n]) for n in (0, 2)] != list(map(float, _BOUNDS[storage])):
                return None
            value = clamp.operands[1]
            alone = alone and only_user(value) is not None
        if (added := _made_by(value, "add")) is not None:
            at = _known_side(added)
            found, value = _zero_point(added.operands[at]), added.operands[1 - at]
            if found is None:
                return None
            zero_point, alone = found, alone and only_user(value) is not None
        rounded = _made_by(value, "round_nearest_even")
        scaled = rounded and _made_by(rounded.operands[0], "multiply", "divide")
        if not scaled:
            return None
        side = 1 if scaled.name == "stablehlo.divide" else _known_side(scaled)
        number = _splat(scaled.operands[side])
        if number is None or not _SCALES[0] <= number <= _SCALES[1]:
            return None
        alone = alone and only_user(rounded.operands[0]) is not None
        return _Quantization(storage, scaled, 1 - side, number, zero_point, alone)

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
        bound = _BOUNDS[self.storage][side]
        return self.of(number) <= bound if side == 0 else self.of(number) >= bound


def _quantized(op: Any) -> Any:
    """Return the bytes that a program dequantizes and quantizes again by the same scale and zero point.

    Where they are others, what bounds their numbers to no less than the bytes are is left out: a relu, say.
    """
    made = _Quantization.by(op)
    if made is None:
        return None
    given = _dequantized(made.scaled.operands[made.side])
    if given is not None and (given.type.storage, given.zero_point) == (made.storage, made.zero_point):
        scale = given.scales[0]
        number = float(scale.numbers) if scale.numbers is not None and not scale.dims else np.nan
        low, high = _BOUNDS[made.storage]
        is_near = low <= made.zero_point <= high and abs(number * made.factor - 1) < _SAME
        if len(given.scales) == 1 and is_near:
            with op.location, ir.InsertionPoint(op):
                return given.integers()
    while made.alone and (bound := _made_by(made.scaled.operands[made.side], *_SIDES)) is not None:
        value, *sides = _SIDES[bound.name.removeprefix("stablehlo.")](_known_side(bound))
        if not all(side is None or made.reaches(_splat(bound.operands[side]), n) for n, side in enumerate(sides)):
            break
        made.scaled.operands[made.side] = bound.operands[value]
        _erase_unread(bound)
    return None


_SIDES: dict[str, Callable[[int], tuple[int, int | None, int | None]]] = {
    "maximum": lambda known: (1 - known, known, None),
    "minimum": lambda known: (1 - known, None, known),
    "clamp": lambda _: (1, 0, 2),
}
"""Operations that bound numbers: the operands that are bounded, the lower bound and the upper one."""


_REWRITES: dict[str, Callable[[Any], Any]] = {
    "stablehlo.reduce_window": _max_pool,
    "stablehlo.convert": _quantized,
    **dict.fromkeys(EXACT, _product),
}


# --- matching ---------------------------------------------------------------------------------------------------------


def _dequantized(value: Any) -> _Dequantized | None:
    """Match an array of dequantized bytes, which scales, a zero point, a conversion and moves lead to."""
    if str(value.type.element_type) != "f32" or not value.type.has_static_shape or 0 in value.type.shape:
        return None
    scales: list[_Scales] = []
    moves: list[Any] = []
    zero_point: int | None = None
    places: list[int] | None = list(range(value.type.rank))  # of dimensions in the floats' shape; None after a reshape
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
        elif kind == "convert" and str(maker.operands[0].type.element_type) in _BOUNDS:
            return _Dequantized(maker.operands[0], tuple(moves), zero_point or 0, tuple(scales)) if scales else None
        elif kind == "convert" and str(maker.operands[0].type.element_type) in _WIDER:
            value = maker.operands[0]
        else:
            return None
    return None


def _scales(value: Any, places: list[int] | None) -> _Scales | None:
    """Match numbers that are spread over an array whose dimensions have these places."""
    number, maker = _splat(value), _made_by(value, "broadcast_in_dim")
    if number is not None:
        return _Scales((), np.array(number, np.float32)) if _are_ordinary(np.array(number)) else None
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
        return _Scales(along, None, source)
    return _Scales(along, numbers.reshape([n for n in numbers.shape if n > 1])) if _are_ordinary(numbers) else None


def _are_ordinary(numbers: np.ndarray) -> bool:
    return bool(((np.abs(numbers) >= _SCALES[0]) & (np.abs(numbers) <= _SCALES[1])).all())


def _made_by(value: Any, *names: str) -> Any:
    """Return the operation that makes an array, if it is one of these."""
    maker = defining(value)
    return maker if maker is not None and maker.name.removeprefix("stablehlo.") in names else None


def _known_side(op: Any) -> int:
    """Return which of two operands is one known number; the second one where none is."""
    return 0 if _splat(op.operands[1]) is None and _splat(op.operands[0]) is not None else 1


def _zero_point(value: Any) -> int | None:
    number = _splat(value)
    return int(number) if number is not None and abs(number) < _MOST_OF_ZERO_POINT and number % 1 == 0 else None


def _splat(value: Any) -> float | None:
    """Return the number that all elements of an array are, if it is known."""
    while (maker := _made_by(value, "broadcast_in_dim", "reshape")) is not None:
        value = maker.operands[0]
    numbers = _numbers(value)
    if numbers is None or not numbers.size or numbers.dtype.kind not in "iufV":
        return None
    return float(numbers.flat[0]) if (numbers == numbers.flat[0]).all() else None


def _numbers(value: Any) -> np.ndarray | None:
    """Return the numbers of a constant, maybe in another shape; None for what is none."""
    maker = _made_by(value, "constant", "reshape")
    if maker is None:
        return None
    if maker.name == "stablehlo.reshape":
        numbers = _numbers(maker.operands[0])
        return None if numbers is None else numbers.reshape(value.type.shape)
    return read_constant(maker, BY_MLIR[str(value.type.element_type)], tuple(value.type.shape))
