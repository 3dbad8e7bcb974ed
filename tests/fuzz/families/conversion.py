"""From one element type to another, and constants of every type."""

from __future__ import annotations

from math import prod

from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import C64, C128, LARGEST, Writer, family, nested_text, number_text

conversion = family("conversion")

MOST_WRITTEN = 500
"""Numbers of a constant that differ."""
PRECISIONS = ((5, 10), (8, 7), (4, 3), (5, 2), (11, 52), (8, 23), (2, 0), (8, 3))


@conversion.statement(2)
def convert(w: Writer) -> Value:
    return converted(w, w.any(), w.element())


def converted(w: Writer, x: Value, element: str) -> Value:
    """The value in another element type, held where that can hold it."""
    if x.is_complex and element not in (C64, C128):
        x = w.part(x, w.random.choice(["real", "imag"]))
    if "i1" not in (x.element, element):
        x = _in_range(w, x, element)
    return w.emit(f"stablehlo.convert {x.name} : ({x.type}) -> {tensor(x.shape, element)}", x.shape, element)


def _in_range(w: Writer, x: Value, element: str) -> Value:
    """The value where the other type can hold it: beyond that, conversions to integers are left to the implementation;
    whole programs must stay exact."""
    to_integer = x.is_float and not _is_float(element)
    if w.whole or to_integer:
        x = w.small(x, LARGEST.get(element, 100))
    if to_integer and not w.whole:
        # NaN has no integer.
        finite = tensor(x.shape, "i1")
        p = w.emit(f"stablehlo.compare EQ, {x.name}, {x.name} : ({x.type}, {x.type}) -> {finite}", x.shape, "i1")
        zero = w.splat(0, x.shape, x.element)
        x = w.emit(f"stablehlo.select {p.name}, {x.name}, {zero.name} : {p.type}, {x.type}", x.shape, x.element)
    if element.startswith("u") and x.is_float:
        x = w.emit(f"stablehlo.abs {x.name} : {x.type}", x.shape, x.element)
    return x


def _is_float(element: str) -> bool:
    return Value("", (), element).is_float or element in (C64, C128)


@conversion.statement(0.5)
def bitcast(w: Writer) -> Value | None:
    """The bits of integers, as other integers or as floats; bits of NaN differ between implementations."""
    same = {
        "i32": ("ui32", "f32"),
        "ui32": ("i32", "f32"),
        "i8": ("ui8",),
        "ui8": ("i8",),
        "i16": ("ui16", "bf16", "f16"),
    }
    x = w.pick(lambda v: v.element in same)
    if x is None or w.whole:
        return None
    element = w.random.choice(same[x.element])
    return w.emit(f"stablehlo.bitcast_convert {x.name} : ({x.type}) -> {tensor(x.shape, element)}", x.shape, element)


@conversion.statement(0.5)
def bitcast_to_other_width(w: Writer) -> Value | None:
    """One element becomes several, or several one."""
    x = w.pick(lambda v: v.element in ("i32", "ui32", "i8", "ui8", "i16"))
    if x is None or w.whole:
        return None
    if x.element in ("i32", "ui32"):
        element, count = w.random.choice([("i8", 4), ("ui8", 4), ("i16", 2), ("ui16", 2)])
        shape = (*x.shape, count)
    elif x.shape and x.shape[-1] == 4 and x.element != "i16":
        element, shape = "i32", x.shape[:-1]
    else:
        return None
    return w.emit(f"stablehlo.bitcast_convert {x.name} : ({x.type}) -> {tensor(shape, element)}", shape, element)


@conversion.statement(0.4)
def reduce_precision(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.element in ("f32", "f64", "bf16", "f16"))
    if x is None or w.whole:
        return None
    exponent, mantissa = w.random.choice(PRECISIONS)
    return w.emit(
        f"stablehlo.reduce_precision {x.name}, format = e{exponent}m{mantissa} : {x.type}", x.shape, x.element
    )


@conversion.statement(1)
def constant(w: Writer) -> Value:
    shape, element = w.shape(), w.element()
    highest = {"i1": 1, "f8E4M3FN": 4, "f8E5M2": 4}.get(element, 7)
    if w.chance(0.5) or not prod(shape) or not shape or prod(shape) > MOST_WRITTEN:
        return w.splat(w.random.randint(0, highest), shape, element)
    lowest = 0 if element == "i1" or element.startswith("u") else -4
    numbers = [number_text(w.random.randint(lowest, highest), element) for _ in range(prod(shape))]
    made = tensor(shape, element)
    return w.emit(f"stablehlo.constant dense<{nested_text(numbers, shape)}> : {made}", shape, element)


@conversion.statement(1)
def iota(w: Writer) -> Value:
    shape = w.random.choice([s for s in (*w.shapes, (0,)) if s])
    element = w.element(["i32", "f32", "i8", "bf16", C64, "ui32", "f64", "i64", "f16"])
    dimension = w.random.randrange(len(shape))
    return w.emit(f"stablehlo.iota dim = {dimension} : {tensor(shape, element)}", shape, element)
