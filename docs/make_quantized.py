"""Writes the table of docs/quantized.md: operations on quantised arrays, run here and by StableHLO's interpreter.

Run as `python docs/make_quantized.py`; with `--check` it only tells whether the table is up to date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import stablexla as sx
from stablexla.inspection.judging.oracles import shared_oracle
from stablexla.processes.questions import Refusal
from stablexla.targets.signature.signature import signature_of
from stablexla.targets.stablehlo.imports.quantized.products import EXACT
from stablexla.targets.stablehlo.imports.quantized.quantized import MOVES

PAGE = Path(__file__).resolve().parent / "quantized.md"
BEGIN, END = "<!-- table: docs/make_quantized.py -->\n", "<!-- end -->\n"
X, Y, R = (f"!quant.uniform<i8:f32, {p}>" for p in ("0.0371:3", "0.0213:-7", "0.151:11"))

UNARY = (
    *("abs", "cbrt", "ceil", "cosine", "exponential", "exponential_minus_one", "floor", "log", "log_plus_one"),
    *("logistic", "negate", "round_nearest_afz", "round_nearest_even", "rsqrt", "sign", "sine", "sqrt", "tan", "tanh"),
    "uniform_quantize",
)
BINARY = ("add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder", "subtract")
WAYS = {
    "moves": "works on the integers",
    "numbers": "computes with the numbers",
    "sums": "sums integers, scales the sum",
}


@dataclass(frozen=True)
class Case:
    """A program of one operation on %a, %b and %c, of these types."""

    operation: str
    body: str
    types: tuple[str, ...]

    @property
    def text(self) -> str:
        """The module."""
        parameters = ", ".join(f"%{n}: {t}" for n, t in zip("abc", self.types))
        result = self.types[-1]
        return f"func.func @main({parameters}) -> {result} {{\n{self.body}\nreturn %r : {result}\n}}"


def cases() -> Iterator[Case]:
    """The operations of the table."""
    for name in UNARY:
        yield _plain(name, _of(X, 64), _of(R, 64))
    for name in BINARY:
        yield _plain(name, _of(X, 64), _of(Y, 64), _of(R, 64))
    yield _plain("uniform_dequantize", _of(X, 64), _of("f32", 64))
    yield _plain(
        "reduce_precision", _of(X, 64), _of(R, 64), attributes="exponent_bits = 5 : i32, mantissa_bits = 3 : i32"
    )
    less = "comparison_direction = #stablehlo<comparison_direction LT>"
    yield _plain("compare", _of(X, 64), _of(X, 64), _of("i1", 64), attributes=less)
    yield _plain("clamp", _of(X, 64), _of(X, 64), _of(X, 64), _of(X, 64))
    yield _plain("select", _of("i1", 64), _of(X, 64), _of(X, 64), _of(X, 64))
    yield from _products()
    yield from _moves()


def _products() -> Iterator[Case]:
    weights = Y.replace(":-7", "")
    types = _of(X, 5, 16), _of(weights, 16, 6), _of(R, 5, 6)
    yield Case("dot_general", _typed("stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]", types), types)
    types = _of("f32", 5, 16), _of(weights, 16, 6), _of("f32", 5, 6)
    hybrid = _typed("stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]", types)
    yield Case("dot_general of floats and weights", hybrid, types)
    types = _of(X, 1, 6, 6, 2), _of(Y, 3, 3, 2, 4), _of(R, 1, 4, 4, 4)
    window = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}"
    counts = "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}"
    yield Case("convolution", _typed(f"stablehlo.convolution(%a, %b) {window} {counts}", types), types)


def _moves() -> Iterator[Case]:
    four = _of(X, 4, 6)
    for name, operation, result in (
        ("transpose", "stablehlo.transpose %a, dims = [1, 0]", _of(X, 6, 4)),
        ("reshape", "stablehlo.reshape %a", _of(X, 24)),
        ("slice", "stablehlo.slice %a [1:3, 0:6:2]", _of(X, 2, 3)),
        ("broadcast_in_dim", "stablehlo.broadcast_in_dim %a, dims = [0, 2]", _of(X, 4, 2, 6)),
    ):
        yield Case(name, _typed(operation, (four, result)), (four, result))
    yield Case("reverse", f"%r = stablehlo.reverse %a, dims = [1] : {four}", (four, four))
    twice = _of(X, 8, 6)
    yield Case("concatenate", _typed("stablehlo.concatenate %a, %b, dim = 0", (four, four, twice)), (four, four, twice))
    padded = _typed(
        "stablehlo.pad %a, %b, low = [1, 0], high = [0, 0], interior = [0, 0]", (four, _of(X), _of(X, 5, 6))
    )
    yield Case("pad", padded, (four, _of(X), _of(X, 5, 6)))
    types = four, _of(X), _of(X, 6)
    added = "stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0]"
    yield Case("reduce", _typed(added, types), types)
    ordered = f"""%r = "stablehlo.sort"(%a) <{{dimension = 1 : i64, is_stable = true}}> ({{
  ^bb0(%x: {_of(X)}, %y: {_of(X)}):
    %p = stablehlo.compare LT, %x, %y : ({_of(X)}, {_of(X)}) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}) : ({four}) -> {four}"""
    yield Case("sort", ordered, (four, four))


def _of(element: str, *shape: int) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def _typed(operation: str, types: tuple[str, ...]) -> str:
    return f"%r = {operation} : ({', '.join(types[:-1])}) -> {types[-1]}"


def _plain(name: str, *types: str, attributes: str = "") -> Case:
    operands = ", ".join(f"%{n}" for n, _ in zip("abc", types[:-1]))
    return Case(name, _typed(f'"stablehlo.{name}"({operands}) {{{attributes}}}', types), types)


def row(case: Case) -> str:
    """The table's row of an operation."""
    name = f"stablehlo.{case.operation.split()[0]}"
    way = WAYS["moves" if name in MOVES else "sums" if name in EXACT and " " not in case.operation else "numbers"]
    return f"| {case.operation} | {way} | {_beside_the_interpreter(case)} |"


def _beside_the_interpreter(case: Case) -> str:
    module = sx.load(case.text)
    signature = signature_of(module)
    rng = np.random.default_rng(0)
    arguments = [
        (rng.standard_normal(t.shape) if t.element.is_float else rng.integers(0, 2, t.shape) if t.element.is_pred
         else rng.integers(-128, 127, t.shape, endpoint=True)).astype(t.element.dtype)
        for t in signature.parameters
    ]  # fmt: skip
    (ours,) = sx.compile(case.text).execute(arguments)
    found = shared_oracle("interpreter").run(module, arguments)
    if isinstance(found, Refusal):
        return "refuses"
    (theirs,) = (array.view(t.element.dtype).reshape(t.shape) for array, t in zip(found, signature.results))
    if ours.dtype.kind == "f":
        return "equal" if np.allclose(ours, theirs, rtol=1e-6, atol=1e-6) else "differs"
    apart = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    return "equal" if not apart.any() else f"{int((apart > 0).sum())} of {apart.size} differ, by up to {apart.max()}"


def table() -> str:
    """The table."""
    rows = [row(case) for case in sorted(cases(), key=lambda case: case.operation)]
    return "\n".join(["| operation | here it | the interpreter |", "|---|---|---|", *rows]) + "\n"


def main() -> int:
    """Writes the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether the table is up to date")
    check = parser.parse_args().check
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    new = before + BEGIN + table() + END + rest.split(END, 1)[1]
    if check:
        return int(new != page)
    PAGE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
