"""Operations on each element by itself."""

from __future__ import annotations

from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.op_traits import bare, operations
from tests.fuzz.detours import detour, one_of
from tests.fuzz.program import Value, tensor
from tests.fuzz.writer import C64, C128, Writer, family

elementwise = family("elementwise")

PARTS = {C64: "f32", C128: "f64"}


def _drawn(arity: int, *words: str) -> tuple[str, ...]:
    """Operations of StableHLO that the table has for the fuzzer, by what `OpTraits.drawn` says."""
    found = operations(lambda traits: traits.arity == arity and traits.is_drawn_on(*words))
    return tuple(bare(name) for name in found if name.startswith("stablehlo."))


def same_names(arity: int, element: str, whole: bool) -> tuple[str, ...]:
    """Operations with so many operands of one type whose results are the same bits everywhere.

    In whole programs those that keep numbers whole.
    """
    type_ = BY_MLIR[element]
    kind = kind_of(element)
    words = [kind] if whole else [kind, f"fraction:{kind}"]
    found = _drawn(arity, *words, *(["signed"] if type_.is_integer and type_.is_signed else []))
    # A product of whole numbers in bf16 soon has more digits than the type.
    return tuple(name for name in found if name != "multiply") if whole and element == "bf16" else found


def function_names(arity: int, element: str) -> tuple[str, ...]:
    """Operations with so many operands of one type whose last bits differ between implementations."""
    return _drawn(arity, f"ulp:{kind_of(element)}")


def kind_of(element: str) -> str:
    """The word of `OpTraits.drawn` for an element type."""
    type_ = BY_MLIR[element]
    kinds = {"pred": type_.is_pred, "integer": type_.is_integer, "complex": type_.is_complex}
    return next((word for word, holds in kinds.items() if holds), "float")


@elementwise.statement(2)
def unary(w: Writer) -> Value:
    x = w.any()
    name = w.random.choice(same_names(1, x.element, w.whole))
    return w.emit(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.element)


@elementwise.statement(6)
def binary(w: Writer) -> Value:
    x = w.any()
    y = w.same(x)
    name = w.random.choice(same_names(2, x.element, w.whole))
    if name not in ("maximum", "minimum"):
        x, y = w.ready(x), w.ready(y)
    return w.emit(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.shape, x.element)


@elementwise.statement(0.7)
def quotient(w: Writer) -> Value | None:
    """Of integers by one that is not 0, for which the oracles have no answer."""
    x = w.pick(lambda v: v.element_type.is_integer)
    if x is None:
        return None
    y = w.splat(w.random.choice([1, 2, 3, 5, 7]), x.shape, x.element)
    if w.chance(0.5):
        y = w.emit(f"stablehlo.or {w.same(x).name}, {y.name} : {x.type}", x.shape, x.element)
    name = w.random.choice(["divide", "remainder"])
    if name == "divide" and x.element_type.is_signed:
        # The smallest number by -1 is left to the implementation.
        y = w.emit(f"stablehlo.abs {y.name} : {y.type}", x.shape, x.element)
        y = w.emit(f"stablehlo.maximum {y.name}, {w.splat(1, x.shape, x.element).name} : {y.type}", x.shape, x.element)
    return w.emit(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.shape, x.element)


@elementwise.statement(2.5)
def function(w: Writer) -> Value | None:
    """What is not the same to the last bit everywhere."""
    if w.whole or w.depth:
        return None
    x = w.pick(lambda v: v.is_float or v.is_complex)
    if x is None:
        return None
    if w.chance(0.2) and x.element != "i1":
        name, y = w.random.choice(function_names(2, x.element)), w.same(x)
        return w.emit(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", x.shape, x.element)
    name = w.random.choice(function_names(1, x.element))
    return w.emit(f"stablehlo.{name} {x.name} : {x.type}", x.shape, x.element)


@elementwise.statement(0.3)
def integer_power(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.element_type.is_integer)
    if x is None:
        return None
    y = w.splat(w.random.randint(0, 3), x.shape, x.element)
    return w.emit(f"stablehlo.power {x.name}, {y.name} : {x.type}", x.shape, x.element)


@elementwise.statement(1)
def compare(w: Writer) -> Value:
    x = w.any()
    return compared(w, x, w.same(x))


def compared(w: Writer, x: Value, y: Value) -> Value:
    """A comparison of two values of one type."""
    type_ = x.element_type
    word = w.random.choice(["EQ", "NE"] if type_.is_complex else ["LT", "GE", "EQ", "NE", "LE", "GT"])
    kind = "FLOAT" if type_.is_float or type_.is_complex else "SIGNED" if type_.is_signed else "UNSIGNED"
    if type_.is_float and not w.whole and not w.depth and w.chance(0.2):
        kind = "TOTALORDER"
    flags = tensor(x.shape, "i1")
    return w.emit(
        f"stablehlo.compare {word}, {x.name}, {y.name}, {kind} : ({x.type}, {y.type}) -> {flags}", x.shape, "i1"
    )


@elementwise.statement(0.4)
def is_finite(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.is_float)
    if x is None:
        return None
    return w.emit(f"stablehlo.is_finite {x.name} : ({x.type}) -> {tensor(x.shape, 'i1')}", x.shape, "i1")


@elementwise.statement(1.5)
def select(w: Writer) -> Value:
    x = w.any()
    y = w.same(x)
    p = w.pick(lambda v: v.element == "i1" and v.shape in (x.shape, ())) or compared(w, x, y)
    return w.emit(f"stablehlo.select {p.name}, {x.name}, {y.name} : {p.type}, {x.type}", x.shape, x.element)


@elementwise.statement(1)
def clamp(w: Writer) -> Value:
    x = w.any()
    if w.chance(0.5) and not x.is_complex:
        low, high = w.same(x), w.same(x)
        types = f"({low.type}, {x.type}, {high.type}) -> {x.type}"
        return w.emit(f"stablehlo.clamp {low.name}, {x.name}, {high.name} : {types}", x.shape, x.element)
    return w.small(x, w.random.randint(1, 6))


@elementwise.statement(1)
def complex_number(w: Writer) -> Value | None:
    """A complex number of two parts, or a part of one."""
    x = w.pick(lambda v: v.element in ("f32", "f64", C64, C128))
    if x is None:
        return None
    if x.is_complex:
        return w.part(x, w.random.choice(["real", "imag"]))
    made = {"f32": C64, "f64": C128}[x.element]
    return w.emit(f"stablehlo.complex {x.name}, {w.same(x).name} : {tensor(x.shape, made)}", x.shape, made)


@elementwise.statement(0.3)
def complex_abs(w: Writer) -> Value | None:
    x = w.pick(lambda v: v.is_complex)
    if x is None or w.whole or w.depth:
        return None
    made = PARTS[x.element]
    return w.emit(f"stablehlo.abs {x.name} : ({x.type}) -> {tensor(x.shape, made)}", x.shape, made)


@elementwise.statement(1)
def map_(w: Writer) -> Value | None:
    """A computation of scalars over all elements."""
    x = w.pick(lambda v: v.element_type.is_integer or v.element == "i1", least_rank=1)
    if x is None:
        return None
    y = w.same(x)
    scalar, name = tensor((), x.element), w.random.choice(same_names(2, x.element, w.whole))
    a, b, c, d = (w.name() for _ in range(4))
    dimensions = ", ".join(map(str, range(len(x.shape))))
    return w.emit(
        f'"stablehlo.map"({x.name}, {y.name}) ({{\n^bb0({a}: {scalar}, {b}: {scalar}):\n'
        f"{c} = stablehlo.not {a} : {scalar}\n{d} = stablehlo.{name} {c}, {b} : {scalar}\n"
        f"stablehlo.return {d} : {scalar}\n}}) {{dimensions = array<i64: {dimensions}>}}"
        f" : ({x.type}, {y.type}) -> {x.type}",
        x.shape,
        x.element,
    )


@elementwise.statement(0.6, regions=True)
def map_anything(w: Writer) -> Value | None:
    """Any statements on arrays and scalars, of the elements alone: XLA knows no computations that use other values."""
    x = w.pick(lambda v: not v.is_complex, least_rank=1)
    if x is None:
        return None
    operands = [x, *w.random.choices([v for v in w.values if v.shape == x.shape and not v.is_complex], k=1)]
    arguments = [Value(w.name(), (), v.element) for v in operands]

    def write() -> list[Value]:
        w.values = [*arguments, detour(w, arguments[0])]
        w.statements(w.random.randint(1, 5))
        made = w.pick(lambda v: 0 not in v.shape) or arguments[0]
        return [one_of(w, made) if made.shape else made]

    region, (made,) = w.region(arguments, write)
    dimensions = ", ".join(map(str, range(len(x.shape))))
    return w.apply_region("map", operands, region, x.shape, made.element, f"dimensions = array<i64: {dimensions}>")
