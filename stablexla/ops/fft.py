"""Discrete Fourier transforms."""

from __future__ import annotations

from typing import Literal

from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.checking import Rules, Sizes, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.shapes import Shape

__all__ = ["fft"]

#: Forward, inverse, forward from real numbers, inverse to real numbers.
FftType = Literal["FFT", "IFFT", "RFFT", "IRFFT"]

_WHOLE = {"f32": "c64", "f64": "c128"}
_TAKES = {"FFT": ("c64", "c128"), "IFFT": ("c64", "c128"), "RFFT": ("f32", "f64"), "IRFFT": ("c64", "c128")}


@operation("stablehlo.fft", only=("f32", "f64", "c64", "c128"))
def fft(operand: XlaOp, fft_type: FftType, fft_length: Sizes) -> XlaOp:
    """The discrete Fourier transform over the one to three last dimensions.

    "FFT" gives the sums of `operand[j] * exp(-2i pi j k / n)` for each k, "IFFT" those with the other sign, divided by
    n. "RFFT" is "FFT" of real numbers, without the part of the last dimension that mirrors the rest: n becomes
    n // 2 + 1. "IRFFT" is the inverse of that; what it reads of an imaginary part that must be zero is ignored. Over
    several dimensions, one after the other is transformed; the last one first, but in the inverse transforms last.

    Args:
        operand: of f32 or f64 for "RFFT", else of c64 or c128.
        fft_type: "FFT", "IFFT", "RFFT" or "IRFFT".
        fft_length: the sizes of the transformed dimensions, on the side of the real numbers if there is one: "IRFFT"
            with (16,) and (17,) takes the same operand.

    Returns:
        An array of the shape of `operand` but for the last dimension of "RFFT" and "IRFFT".

    Raises:
        ShapeError: (I1) another element type; (I2) another word for `fft_type`; (C1) more lengths than dimensions; (C2)
            an element type that `fft_type` does not take; (C3) no length, or more than three; (C4) lengths that are not
            those of the real array; (C5) a last dimension that "IRFFT" cannot make a real one of; lengths that are not
            those of the operand.

    Source: `Fft` of XLA's operation semantics; StableHLO `fft`.

    >>> b = sx.XlaBuilder("example")
    >>> x = b.parameter(0, sx.f32[5, 16])
    >>> sx.fft(x, "RFFT", (16,))
    XlaOp(stablehlo.fft, c64[5,9])
    >>> sx.fft(sx.fft(x, "RFFT", (5, 16)), "IRFFT", (5, 16))
    XlaOp(stablehlo.fft, f32[5,16])
    """
    with checking("fft", operand=operand, fft_type=fft_type, fft_length=fft_length) as rule:
        x = rule.op("operand", operand)
        rule.types(operand=x)
        lengths = rule.sizes("fft_length", fft_length)
        rule.word("I2", "fft_type", fft_type, _TAKES)
        rule("C3", 1 <= len(lengths) <= 3, f"fft_length must have one to three sizes, not {len(lengths)}")
        rank = f"fft_length has {len(lengths)} sizes, and operand has rank {x.shape.rank}"
        rule("C1", len(lengths) <= x.shape.rank, rank)
        takes, given = _TAKES[fft_type], x.shape.element_type
        rule("C2", given.name in takes, f"{fft_type} takes {' or '.join(takes)}, not {given}")
        result = _result(rule, x.shape, fft_type, lengths)
    context = x.builder.context
    attributes = {"fft_type": stablehlo.FftTypeAttr.get(fft_type, context), "fft_length": lengths}
    return x.builder.emit("stablehlo.fft", [x], result, attributes)


def _result(rule: Rules, shape: Shape, fft_type: FftType, lengths: tuple[int, ...]) -> Shape:
    """C4 and C5: the shape of the result, where `lengths` fit the operand."""
    batch, sizes = shape.dimensions[: -len(lengths)], shape.dimensions[-len(lengths) :]
    wanted = (*lengths[:-1], _half(lengths[-1])) if fft_type == "IRFFT" else lengths
    if fft_type == "IRFFT":
        told = f"IRFFT to {lengths[-1]} elements takes {wanted[-1]} in the last dimension, not {sizes[-1]}"
        rule("C5", sizes[-1] == wanted[-1], told, f"fft_length may end with {_whole(sizes[-1])}")
    number = "" if fft_type in ("FFT", "IFFT") else "C4"  # XLA leaves the rest of the dimension undefined
    rule(number, sizes == wanted, f"fft_length is {lengths}, and the last dimensions of operand are {sizes}")
    if fft_type == "RFFT":
        return Shape(_WHOLE[shape.element_type.name], (*batch, *lengths[:-1], _half(lengths[-1])))
    return Shape(shape.element_type.part if fft_type == "IRFFT" else shape.element_type, (*batch, *lengths))


def _half(length: int) -> int:
    """How many elements of the spectrum of real numbers are kept."""
    return length // 2 + 1 if length else 0


def _whole(half: int) -> str:
    """The lengths whose spectrum keeps `half` elements."""
    return "0" if half == 0 else "1" if half == 1 else f"{2 * half - 2} or {2 * half - 1}"
