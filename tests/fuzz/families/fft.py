"""Fourier transforms over one to three inner dimensions."""

from __future__ import annotations

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import C64, C128, Writer, family

fft = family("fft")


@fft.statement(1)
def transform(w: Writer) -> Value | None:
    """Of numbers of moderate size: an infinity would spread."""
    if w.whole or w.depth:
        return None
    x = w.pick(lambda v: v.element in ("f32", "f64", C64, C128) and 0 not in v.shape, least_rank=1)
    if x is None:
        return None
    x = w.finite(x)
    count = w.random.randint(1, min(3, len(x.shape)))
    lengths = list(x.shape[-count:])
    made, element = list(x.shape), x.element
    if x.is_float:
        kind, made[-1], element = "RFFT", lengths[-1] // 2 + 1, {"f32": C64, "f64": C128}[x.element]
    else:
        kind = w.random.choice(["FFT", "IFFT", "IRFFT"])
        if kind == "IRFFT":
            lengths[-1] = made[-1] = w.random.choice([2 * lengths[-1] - 1, max(1, 2 * lengths[-1] - 2)])
            element = {C64: "f32", C128: "f64"}[x.element]
            if made[-1] // 2 + 1 != x.shape[-1]:
                return None
    types = f"({x.type}) -> {tensor(tuple(made), element)}"
    return w.emit(f"stablehlo.fft {x.name}, type = {kind}, length = {lengths} : {types}", tuple(made), element)
