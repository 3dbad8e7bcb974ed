"""Pass that sums integers in products of numbers that a program dequantizes itself, as PyTorch's and ONNX's do.

Such programs hold bytes, make floats of them, `(q - zero point) * scale`, and multiply these in f32. The products of
the bytes are summed instead, exactly and in a quarter of the instructions, and the sum is scaled once
(docs/decisions/0066-sums-of-dequantized-integers.md). Max pooling and quantization of such numbers stay in bytes, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.attributes.windows import Window
from stablexla.dialects.erasing import erase
from stablexla.lowering.support.operations import defining
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.imports.quantized.dequantized import (
    BOUNDS,
    Dequantized,
    Quantization,
    Scales,
    known_side,
    made_by,
    splat_of,
)
from stablexla.targets.stablehlo.imports.quantized.products import EXACT, Factor, factors, integer_sum
from stablexla.targets.stablehlo.inlining import operations_of

_SAME = 1e-4  # by so much scales may differ: 255 * scale / scale' rounds to the integer that it was


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
    left, right = (Dequantized.of(value) for value in op.operands)
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


def _placed(scales: Scales, side: Factor) -> Scales | None:
    """Return scales by dimensions of the result; None where they differ within a sum."""
    places = [place for dim in scales.dims if (place := side.place(dim)) is not None]
    return replace(scales, dims=tuple(places)) if len(places) == len(scales.dims) else None


def _merged(scales: Iterable[Scales]) -> list[Scales]:
    """Return known scales as one product, as far as its numbers are normal, and the others as they are."""
    made: list[Scales] = []
    for each in scales:
        last = made[-1] if made else None
        if last is not None and last.numbers is not None and each.numbers is not None:
            dims = last.dims or each.dims
            with np.errstate(all="ignore"):
                numbers = last.numbers * each.numbers if each.dims in ((), dims) else np.zeros(())
            if (np.abs(numbers) >= np.finfo(np.float32).tiny).all() and np.isfinite(numbers).all():
                made[-1] = Scales(dims, numbers)
                continue
        made.append(each)
    return made


# --- max pooling ------------------------------------------------------------------------------------------------------


def _max_pool(op: Any) -> Any:
    """Emit max pooling of dequantized bytes, whose order is that of the bytes."""
    if len(op.operands) != 2 or not _takes_maxima(op) or not _every_window_has_an_element(op):
        return None
    given, start = Dequantized.of(op.operands[0]), splat_of(op.operands[1])
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
        return given.numbers(made.results[0])


def _takes_maxima(op: Any) -> bool:
    largest, *rest = [inner.operation for inner in op.regions[0].blocks[0].operations]
    if largest.name != "stablehlo.maximum" or len(rest) != 1 or list(rest[0].operands) != list(largest.results):
        return False
    return set(largest.operands) == set(op.regions[0].blocks[0].arguments)


def _every_window_has_an_element(op: Any) -> bool:
    """Whether every window has an element of the array: none lies in the padding as a whole."""
    shape, positions = op.operands[0].type.shape, op.results[0].type.shape
    window = Window.read(op.attributes, len(shape))
    if {*window.base_dilations, *window.window_dilations} != {1}:
        return False
    last = [
        (n - 1) * stride - low for n, stride, (low, _) in zip(positions, window.strides, window.padding, strict=True)
    ]
    return all(
        0 <= low < size and start < extent
        for (low, _), size, start, extent in zip(window.padding, window.sizes, last, shape, strict=True)
    )


# --- quantization -----------------------------------------------------------------------------------------------------


def _quantized(op: Any) -> Any:
    """Return the bytes that a program dequantizes and quantizes again by the same scale and zero point.

    Where they are others, what bounds their numbers to no less than the bytes are is left out: a relu, say.
    """
    made = Quantization.by(op)
    if made is None:
        return None
    given = Dequantized.of(made.scaled.operands[made.side])
    if given is not None and (given.type.storage, given.zero_point) == (made.storage, made.zero_point):
        scale = given.scales[0]
        number = float(scale.numbers) if scale.numbers is not None and not scale.dims else np.nan
        low, high = BOUNDS[made.storage]
        is_near = low <= made.zero_point <= high and abs(number * made.factor - 1) < _SAME
        if len(given.scales) == 1 and is_near:
            with op.location, ir.InsertionPoint(op):
                return given.integers()
    while made.alone and (bound := made_by(made.scaled.operands[made.side], *_SIDES)) is not None:
        value, *sides = _SIDES[bound.name.removeprefix("stablehlo.")](known_side(bound))
        if not all(side is None or made.reaches(splat_of(bound.operands[side]), n) for n, side in enumerate(sides)):
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
