"""Equal parts of a program, compiled once: the same results, bit for bit, and the same memory.

Oracle: the program compiled without looking for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import jaxlib.mlir.ir as hlo_ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import stablehlo_context
from stablexla.inspection.explaining.explanation import Explanation
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.stablehlo.repeats.dataflow import Dataflow, Structures

SIDE = 16
MATRIX, ROW, NUMBER, BITS = (
    f"tensor<{SIDE}x{SIDE}xf32>",
    f"tensor<{SIDE}xf32>",
    "tensor<f32>",
    f"tensor<{SIDE}x{SIDE}xi1>",
)

Layer = Callable[["Writer", str], str]


class Writer:
    """Writes a program of matrices, a line an operation; parameters come in the order in which they are asked for."""

    def __init__(self) -> None:
        self.parameters: list[str] = []
        self.lines: list[str] = []

    def parameter(self, type_: str) -> str:
        self.parameters.append(type_)
        return f"%a{len(self.parameters) - 1}"

    def write(self, operation: str, results: int = 1) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"{name}{f':{results}' if results > 1 else ''} = stablehlo.{operation}")
        return name

    def constant(self, value: float) -> str:
        return self.write(f"constant dense<{value:.3f}> : {MATRIX}")

    def map(self, name: str, *operands: str) -> str:
        return self.write(f"{name} {', '.join(operands)} : {MATRIX}")

    def product(self, x: str, y: str) -> str:
        return self.write(f"dot_general {x}, {y}, contracting_dims = [1] x [0] : ({MATRIX}, {MATRIX}) -> {MATRIX}")

    def spread(self, x: str, type_: str, dimension: str = "") -> str:
        return self.write(f"broadcast_in_dim {x}, dims = [{dimension}] : ({type_}) -> {MATRIX}")

    def row_sums(self, x: str) -> str:
        zero = self.write(f"constant dense<0.0> : {NUMBER}")
        reduced = f"reduce({x} init: {zero}) applies stablehlo.add across dimensions = [1]"
        return self.spread(self.write(f"{reduced} : ({MATRIX}, {NUMBER}) -> {ROW}"), ROW, "0")

    def text(self, *results: str) -> str:
        parameters = ", ".join(f"%a{n}: {type_}" for n, type_ in enumerate(self.parameters))
        types = ", ".join([MATRIX] * len(results))
        lines = "\n  ".join([*self.lines, f"return {', '.join(results)} : {types}"])
        return f"func.func @main({parameters}) -> ({types}) {{\n  {lines}\n}}"


def arguments_of(writer: Writer, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    shapes = {MATRIX: (SIDE, SIDE), ROW: (SIDE,), NUMBER: (), BITS: (SIDE, SIDE)}
    drawn = [draw.standard_normal(shapes[type_]).astype(np.float32) / 2 for type_ in writer.parameters]
    return [a > 0 if type_ == BITS else a for a, type_ in zip(drawn, writer.parameters, strict=True)]


def check(writer: Writer, *results: str, more_bytes: int = 0) -> Explanation:
    """Compare with the program without functions for its parts; return what is said of the one with them.

    Args:
        more_bytes: by how much its temporaries may be larger, above 2%.
    """
    text, arguments = writer.text(*results), arguments_of(writer)
    executables = [sx.compile(text, options=sx.CompileOptions(find_repeats=found)) for found in (True, False)]
    ours, wanted = ([np.asarray(r) for r in _results(e(*arguments))] for e in executables)
    for one, other in zip(ours, wanted, strict=True):
        assert one.tobytes() == other.tobytes()
    mine, others = (e.explain() for e in executables)
    assert mine.arena_bytes <= 1.02 * others.arena_bytes + more_bytes
    for fate, other in zip(mine.fates, others.fates, strict=True):
        assert fate.what == other.what or (fate.what, other.what) == ("kernel", "view")  # made again in each part
    assert not others.parts
    return mine


def _results(given: object) -> list[object]:
    return list(given) if isinstance(given, tuple | list) else [given]


def dense(w: Writer, x: str) -> str:
    """A layer: a product, its bias, a function, a normalisation by rows, and the layer's operand added."""
    bias = w.spread(w.parameter(ROW), ROW, "1")
    h = w.map("tanh", w.map("add", w.product(x, w.parameter(MATRIX)), bias))
    centred = w.map("subtract", h, w.map("multiply", w.row_sums(h), w.constant(1 / SIDE)))
    return w.map("add", centred, x)


def test_layers() -> None:
    w = Writer()
    x = w.parameter(MATRIX)
    for _ in range(5):
        x = dense(w, x)
    explanation = check(w, x)
    (part,) = explanation.parts
    assert len(part.stretches) == 5
    numbers = [n for stretch in part.stretches for n in stretch]
    assert len(set(numbers)) == len(numbers)
    products = [op.number for op in explanation.operations if op.name == "stablehlo.dot_general"]
    assert all(sum(n in stretch for n in products) == 1 for stretch in part.stretches)
    assert "equal parts, compiled once" in explanation.text(all=True)
    assert "equal parts, compiled once" in explanation.html()


def test_a_kernel_is_named_for_each_operation() -> None:
    """Each of the calls has the operations of its own layer."""
    w = Writer()
    x = w.parameter(MATRIX)
    for _ in range(4):
        x = dense(w, x)
    explanation = check(w, x)
    products = [op.number for op in explanation.operations if op.name == "stablehlo.dot_general"]
    calls = [explanation.fates[n].calls for n in products]
    assert len({call for (call,) in calls}) == 4


@pytest.mark.parametrize("extra", ["every layer", "the last layer", "the first layer"])
def test_results_of_the_layers_are_the_programs(extra: str) -> None:
    w = Writer()
    x = w.parameter(MATRIX)
    made = []
    for _ in range(5):
        x = dense(w, x)
        made.append(w.map("negate", w.product(x, x)))
        x = w.map("add", x, made[-1])
    check(w, x, *{"every layer": made, "the last layer": made[-1:], "the first layer": made[:1]}[extra])


def test_one_kind_of_layer_after_another() -> None:
    """The second kind reads what the first kind's last layer makes."""
    w = Writer()
    x = w.parameter(MATRIX)
    for _ in range(5):
        x = dense(w, x)
    for _ in range(5):
        h = w.map("exponential", w.map("negate", w.product(w.product(x, w.parameter(MATRIX)), x)))
        x = w.map("subtract", w.map("divide", h, w.row_sums(h)), x)
    assert len(check(w, x).parts) == 2


def test_loops_that_send_are_not_shared() -> None:
    """Values leave a loop in each of the layers, in order: such a loop is not equal to another."""
    token = "!stablehlo.token"
    lines, x, last = [], "%x", "%t"
    for n in range(5):
        lines += [
            f"%l{n}:2 = stablehlo.while(%i{n} = {x}, %k{n} = {last}) : {MATRIX}, {token}",
            f"cond {{ %no{n} = stablehlo.constant dense<false> : tensor<i1>",
            f"  stablehlo.return %no{n} : tensor<i1> }}",
            f'do {{ %s{n} = "stablehlo.outfeed"(%i{n}, %k{n}) : ({MATRIX}, {token}) -> {token}',
            f"  stablehlo.return %i{n}, %s{n} : {MATRIX}, {token} }}",
        ]
        y = f"%l{n}#0"
        for m, name in enumerate(["sine", "tanh", "sqrt", "floor", "negate", "abs"]):
            product = f"dot_general {y}, %w, contracting_dims = [1] x [0] : ({MATRIX}, {MATRIX}) -> {MATRIX}"
            lines += [f"%p{n}_{m} = stablehlo.{product}", f"%y{n}_{m} = stablehlo.{name} %p{n}_{m} : {MATRIX}"]
            y = f"%y{n}_{m}"
        x, last = y, f"%l{n}#1"
    head = f"func.func @main(%x: {MATRIX}, %w: {MATRIX}, %t: {token}) -> ({MATRIX}, {token})"
    text = "\n".join([head + " {", *lines, f"return {x}, {last} : {MATRIX}, {token}", "}"])
    module = run_pipeline(hlo_ir.Module.parse(text, stablehlo_context()), sx.Pipeline("p", [sx.Step("a", FIND)]))
    assert "while" not in str(module).split("@main")[0]
    assert str(module).count("stablehlo.while") == 5


def test_a_captured_value_is_none_of_the_loops_own() -> None:
    loop = """%r{n}:2 = stablehlo.while(%a = %x, %b = %x) : tensor<f32>, tensor<f32>
    cond {{ %c = stablehlo.constant dense<false> : tensor<i1>
           stablehlo.return %c : tensor<i1> }}
    do {{ %d = stablehlo.subtract {operands} : tensor<f32>
         stablehlo.return %d, %d : tensor<f32>, tensor<f32> }}"""
    loops = [loop.format(n=n, operands=o) for n, o in enumerate(["%b, %x", "%x, %b", "%b, %x"])]
    body = "\n".join([*loops, "return %r0#0 : tensor<f32>"])
    module = hlo_ir.Module.parse(f"func.func @main(%x: tensor<f32>) -> tensor<f32> {{ {body} }}", stablehlo_context())
    flow = Dataflow(module.body.operations[0].regions[0].blocks[0], Structures({}))
    one, other, again = (node.key for node in flow.nodes)
    assert one == again != other


FIND = "stablexla-find-repeats"


def test_what_the_layers_share() -> None:
    """A mask, a number, and what is made of them before the layers."""
    w = Writer()
    x, mask, scale = w.parameter(MATRIX), w.parameter(BITS), w.parameter(NUMBER)
    twice = w.write(f"add {scale}, {scale} : {NUMBER}")
    shared, least = w.spread(twice, NUMBER), w.constant(-3.0)
    for _ in range(4):
        h = w.map("multiply", w.product(x, w.parameter(MATRIX)), shared)
        h = w.write(f"select {mask}, {h}, {least} : {BITS}, {MATRIX}")
        h = w.map("divide", w.map("exponential", h), w.row_sums(w.map("exponential", h)))
        x = w.map("add", h, x)
    assert len(check(w, x).parts) == 1


def test_numbers_that_differ() -> None:
    """Layers that differ in a constant are not equal; those that differ in which parameter they read are."""
    for numbers, parts in (([0.1, 0.2, 0.3, 0.4], 0), ([0.1, 0.1, 0.1, 0.1], 1)):
        w = Writer()
        x = w.parameter(MATRIX)
        for number in numbers:
            x = dense(w, w.map("multiply", dense(w, x), w.constant(number)))
        found = check(w, x).parts
        assert len(found) == parts


def test_a_number_that_one_layer_reads_twice() -> None:
    w = Writer()
    x = w.parameter(MATRIX)
    one, other = w.parameter(NUMBER), w.parameter(NUMBER)
    for first, second in [(one, one), (one, other), (other, one), (other, other)]:
        a, b = w.spread(first, NUMBER), w.spread(second, NUMBER)
        x = dense(w, w.map("multiply", w.product(x, w.parameter(MATRIX)), a))
        x = dense(w, w.map("subtract", w.product(x, w.parameter(MATRIX)), b))
    check(w, x)


def test_weights_as_constants() -> None:
    w = Writer()
    x = w.parameter(MATRIX)
    draw = np.random.default_rng(1)
    for _ in range(4):
        rows = ", ".join(f"[{', '.join(f'{v:.3f}' for v in row)}]" for row in draw.standard_normal((SIDE, SIDE)))
        x = dense(w, w.product(x, w.write(f"constant dense<[{rows}]> : {MATRIX}")))
    assert len(check(w, x).parts) == 1


LOOP = """while(%i = {zero}, %y = {x}) : tensor<i32>, {matrix}
    cond {{ %more = stablehlo.compare LT, %i, {two} : (tensor<i32>, tensor<i32>) -> tensor<i1>
           stablehlo.return %more : tensor<i1> }}
    do {{ %next = stablehlo.add %i, {one} : tensor<i32>
{body}
         stablehlo.return %next, {last} : tensor<i32>, {matrix} }}"""


def test_loops_in_layers_and_layers_in_loops() -> None:
    w = Writer()
    x = w.parameter(MATRIX)
    zero, one, two = (w.write(f"constant dense<{n}> : tensor<i32>") for n in range(3))
    for _ in range(3):
        weights = w.parameter(MATRIX)
        start = len(w.lines)
        last = w.map("tanh", w.product("%y", weights))
        body = "\n".join(w.lines[start:])
        del w.lines[start:]
        w.lines.extend(["// " for _ in range(2)])
        text = LOOP.format(zero=zero, one=one, two=two, x=x, matrix=MATRIX, body=body, last=last)
        x = dense(w, dense(w, w.write(text, 2) + "#1"))
    assert len(check(w, x).parts) == 1
    start = len(w.lines)
    y = "%y"
    for _ in range(4):
        y = dense(w, y)
    body = "\n".join(w.lines[start:])
    w.lines[start:] = ["// "] * (len(w.lines) - start)
    text = LOOP.format(zero=zero, one=one, two=two, x=x, matrix=MATRIX, body=body, last=y)
    assert len(check(w, w.write(text, 2) + "#1").parts) == 2


def test_layers_in_a_loop_that_read_a_constant_before_it() -> None:
    """A scalar computed from the constant is rematerialized in the part's function, together with the constant."""
    w = Writer()
    x, number = w.parameter(MATRIX), w.parameter(NUMBER)
    zero, one, two = (w.write(f"constant dense<{n}> : tensor<i32>") for n in range(3))
    half = w.write(f"constant dense<0.5> : {NUMBER}")
    start = len(w.lines)
    y = "%y"
    for _ in range(4):
        y = w.map("multiply", dense(w, y), w.spread(w.write(f"multiply {number}, {half} : {NUMBER}"), NUMBER))
    body = "\n".join(w.lines[start:])
    w.lines[start:] = ["// "] * (len(w.lines) - start)
    text = LOOP.format(zero=zero, one=one, two=two, x=x, matrix=MATRIX, body=body, last=y)
    assert len(check(w, w.write(text, 2) + "#1").parts) == 1


def test_complex_constants() -> None:
    numbers = f"tensor<{SIDE}xcomplex<f32>>"
    lines = [f"%x0 = stablehlo.add %x, %x : {numbers}"]
    for n in range(6):
        lines += [
            f"%c{n} = stablehlo.constant dense<(1.5, -2.0)> : {numbers}",
            f"%d{n} = stablehlo.dot_general %x{n}, %w, contracting_dims = [0] x [0] : "
            f"({numbers}, tensor<{SIDE}x{SIDE}xcomplex<f32>>) -> {numbers}",
            f"%m{n} = stablehlo.multiply %d{n}, %c{n} : {numbers}",
            f"%n{n} = stablehlo.negate %m{n} : {numbers}",
            f"%s{n} = stablehlo.subtract %n{n}, %c{n} : {numbers}",
            f"%t{n} = stablehlo.tanh %s{n} : {numbers}",
            f"%x{n + 1} = stablehlo.sine %t{n} : {numbers}",
        ]
    body = "\n".join([*lines, f"return %x6 : {numbers}"])
    text = f"func.func @main(%x: {numbers}, %w: tensor<{SIDE}x{SIDE}xcomplex<f32>>) -> {numbers} {{\n{body}\n}}"
    draw = np.random.default_rng(0)
    x, w = (draw.standard_normal((2, *shape)).astype(np.float32) / 8 for shape in ((SIDE,), (SIDE, SIDE)))
    given = [a[0] + 1j * a[1] for a in (x, w)]
    results = []
    for found in (True, False):
        executable = sx.compile(text, options=sx.CompileOptions(find_repeats=found))
        assert bool(executable.explain().parts) == found
        results.append(np.asarray(executable(*given)).tobytes())
    assert results[0] == results[1]


def random_layer(draw: random.Random, shared: list[str]) -> Layer:
    """Draw a layer: the same operations each time that it is written, on parameters of its own."""
    plan = [(draw.choice(KINDS), draw.random(), draw.random()) for _ in range(draw.randint(8, 14))]

    def write(w: Writer, x: str) -> str:
        values = [x]
        for kind, first, second in plan:
            one, other = values[int(first * len(values))], values[int(second * len(values))]
            if kind == "weights":
                values.append(w.product(one, w.parameter(MATRIX)))
            elif kind == "product":
                values.append(w.map("tanh", w.product(one, other)))
            elif kind == "bias":
                values.append(w.map("add", one, w.spread(w.parameter(ROW), ROW, "1")))
            elif kind == "scale":
                values.append(w.map("multiply", one, w.spread(w.parameter(NUMBER), NUMBER)))
            elif kind == "shared":
                values.append(w.map("subtract", one, shared[int(second * len(shared))]))
            elif kind == "rows":
                values.append(w.map("divide", w.row_sums(one), w.constant(SIDE)))
            elif kind == "transpose":
                values.append(w.write(f"transpose {one}, dims = [1, 0] : ({MATRIX}) -> {MATRIX}"))
            elif kind == "constant":
                values.append(w.map("multiply", one, w.constant(round(first, 2))))
            elif kind in ("add", "maximum"):
                values.append(w.map(kind, one, other))
            else:
                values.append(w.map(kind, one))
        total = values[1]
        for value in values[2:]:
            total = w.map("maximum", total, value)
        return w.map("tanh", w.product(total, values[-1]))

    return write


MAPS = ["tanh", "negate"]
KINDS = ["weights", "product", "bias", "scale", "shared", "rows", "transpose", "constant", "add", "maximum", *MAPS]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    draw = random.Random(seed)
    w = Writer()
    x, number = w.parameter(MATRIX), w.parameter(NUMBER)
    shared = [w.parameter(MATRIX), w.spread(number, NUMBER), w.map("cosine", x), w.constant(0.25)]
    kept = []
    for _ in range(draw.randint(1, 2)):
        layer = random_layer(draw, shared)
        for _ in range(draw.randint(4, 6)):
            x = layer(w, x)
            if draw.random() < 0.2:
                kept.append(x)
        x = w.map("sine", x)
    assert check(w, x, *kept, more_bytes=4 * SIDE * SIDE).parts  # kernels may come in another order
