"""Measures the largest errors of the elementary functions, and of XLA:CPU's on the same points: docs/numerics.md.

`python -m benchmarks.numerics [--quick] [--complex] [--identities] [--output FILE]`, from the root of the repository.
Takes some twenty minutes; `--quick` two. Without jax the columns of XLA stay empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

from benchmarks import complex_numerics, identities, sums
from tests.numerics.harness import Array, Kernel
from tests.numerics.references import FUNCTIONS, LIMITS, Function, errors, errors_in_wide_numbers, sample

Jitted = Callable[..., Array]

#: functions whose oracle knows no long double: their f64 errors are taken against mpmath, on fewer points
_WITHOUT_LONG_DOUBLE = {"erf", "erfc", "erf_inv"}
#: XLA takes other code for arrays whose length is no multiple of its vectors; both lengths take turns
_CHUNKS = (1 << 20, (1 << 20) - 1)

_HEAD = """# Numerical accuracy of the elementary functions

Made by `python -m benchmarks.numerics`; the bounds are held by `tests/numerics/`.

The pass `stablexla-expand-math` (`lowering/math/`) replaces elementary functions on f32 and f64 by
arithmetic. Its results are at most **2 ULP** (f32) and **3 ULP** (f64) from the exact value over the whole range:
arguments of any size for sin, cos and tan, denormal arguments and results included, special values as in the C
standard's annex F. f16, bf16 and the 8-bit floats are computed in f32 and rounded once.

An error is |result - exact| in units in the last place of the rounded exact value; 0.5 is the least that a correctly
rounded result can reach. `inf` would mean a wrong special value. The points: equal steps through all bit patterns with
a random offset in each step (so every exponent, both signs, denormals), points around 0, 1 and multiples of pi/2, and
special values; for two arguments all pairs of special values, pairs of any numbers, and pairs near each other.
"""

_FOOT = """
Oracles: f32 against f64 (numpy, scipy); f64 against long double (numpy), and against mpmath with 60 digits for erf,
erfc and erf_inv. XLA:CPU flushes denormals to zero, so its columns leave out points with a denormal argument or result
(but not those where only an intermediate result is denormal). `*` says that some special value differs there: infinite
or NaN results, the sign of zero. `-`: jax has no such function in `jax.lax`. XLA's results depend on the array's length
(its vector code and its code for remainders differ), so both kinds of lengths are among the points; ours have the same
bits as scalars and in vectors of any shape.

A maximum over a sample is a lower bound. Where mpmath is the oracle the sample is small: 60,000 further points of
erf_inv in f64 with 1 - x from 8e-12 to 2e-7, its worst region, reached 2.41 ULP.

Polynomials are fitted by `benchmarks/fit_polynomials.py` (Remez exchange, coefficients rounded one after the other).
Where f32 would need pairs of numbers throughout (pow, the inverse hyperbolic functions, erfc, cbrt, erf_inv), it is
computed in f64 with shorter polynomials, which is why those errors are near 0.5. Only numbers that `rng` draws from a
normal distribution come from an erf_inv in f32: over all of its 2^24 arguments it is within 3.19 ULP.
"""


@dataclass
class Worst:
    """The largest error so far, and where it was."""

    error: float = 0.0
    place: tuple[Any, ...] = ()
    special: bool = False

    def note(self, found: Array, arguments: tuple[Array, ...], finite_only: bool = False) -> None:
        if finite_only:
            self.special |= bool(np.isinf(found).any())
            found = np.where(np.isinf(found), 0, found)
        k = int(np.argmax(found))
        if not self.place or found[k] > self.error:
            self.error, self.place = float(found[k]), tuple(a[k] for a in arguments)

    def __str__(self) -> str:
        return f"{self.error:.2f}" + ("*" if self.special else "") if self.place else "-"

    @property
    def where(self) -> str:
        return ", ".join(f"{float(v):.8g}" for v in self.place)


@dataclass
class Row:
    """One function's figures by element type: ours and XLA's."""

    function: Function
    ours: dict[str, Worst] = field(default_factory=dict)
    xla: dict[str, Worst] = field(default_factory=dict)


def jax_functions() -> dict[str, Jitted]:
    """XLA:CPU's functions by our names; empty without jax."""
    try:
        import jax
        from jax import lax
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    renamed = {"powf": lax.pow, "remf": lax.rem, "exp2": lax.exp2}
    same = {name: getattr(lax, name) for name in FUNCTIONS if hasattr(lax, name)}
    return {name: jax.jit(function) for name, function in (same | renamed).items()}


def chunks(arguments: tuple[Array, ...]) -> Iterator[tuple[Array, ...]]:
    start, turn = 0, 0
    while start < arguments[0].size:
        stop = start + _CHUNKS[turn % 2]
        yield tuple(a[start:stop] for a in arguments)
        start, turn = stop, turn + 1


def is_denormal(values: Array) -> Array:
    result: Array = (values != 0) & (np.abs(values) < np.finfo(values.dtype).tiny)
    return result


def measure(function: Function, dtype: Any, count: int, jitted: Jitted | None) -> tuple[Worst, Worst]:
    """The worst of ours and of XLA's over a sample of about `count` points."""
    exact = dtype is np.float64 and function.name in _WITHOUT_LONG_DOUBLE
    count_errors = errors if exact else errors_in_wide_numbers
    kernel = Kernel(function.emit, [dtype] * function.arity)
    ours, theirs = Worst(), Worst()
    for arguments in chunks(sample(function, dtype, min(count, 30_000) if exact else count)):
        result = kernel(*arguments)
        ours.note(count_errors(function, result, *arguments), arguments)
        if jitted is not None:
            other = np.asarray(jitted(*arguments))
            normal = ~is_denormal(result)
            for argument in arguments:
                normal &= ~is_denormal(argument)
            kept = tuple(a[normal] for a in arguments)
            theirs.note(count_errors(function, other[normal], *kept), kept, finite_only=True)
    return ours, theirs


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| function | f32 max ULP | at | f64 max ULP | at | XLA:CPU f32 | XLA:CPU f64 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        single, double = row.ours["f32"], row.ours["f64"]
        cells = [row.function.name, single, single.where, double, double.where, row.xla["f32"], row.xla["f64"]]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few points, and nothing is written without --output")
    parser.add_argument("--complex", action="store_true", help="make the part on complex numbers alone anew")
    parser.add_argument("--identities", action="store_true", help="make the part on identities alone anew")
    parser.add_argument("--output", type=Path, help="default: docs/numerics.md, with --quick none")
    options = parser.parse_args()
    output = options.output or (None if options.quick else Path("docs/numerics.md"))
    if options.identities:
        _write_identities(output)
        return
    if options.complex:
        _write_complex(output, 20 if options.quick else 100)
        return
    counts = {"f32": 1 << 18, "f64": 1 << 14} if options.quick else {"f32": 1 << 24, "f64": 1 << 20}
    mp.mp.dps = 60
    jitted = jax_functions()
    rows = []
    for function in FUNCTIONS.values():
        row = Row(function)
        for name, dtype in (("f32", np.float32), ("f64", np.float64)):
            row.ours[name], row.xla[name] = measure(function, dtype, counts[name], jitted.get(function.name))
            over = "  over the limit" if row.ours[name].error > LIMITS[np.dtype(dtype)] else ""
            print(f"{function.name} {name}: {row.ours[name]}, XLA {row.xla[name]}{over}", flush=True)
        rows.append(row)
    if output is not None:
        single, double = (f"{counts[name]:,}" for name in ("f32", "f64"))
        size = f"\nAbout {single} points in f32, {double} in f64, 30,000 where mpmath is the oracle.\n\n"
        before = output.read_text() if output.exists() else ""
        _, found, part = before.partition(f"\n{sums.HEADING}\n")
        kept = f"\n{sums.HEADING}\n{part}" if found else ""
        output.write_text(_HEAD + size + table(rows) + "\n" + _FOOT + kept)
    _write_complex(output, 20 if options.quick else 100)
    _write_identities(output)


def _write_identities(output: Path | None) -> None:
    if output is not None:
        output.write_text(sums.replaced(output.read_text(), identities.section()))


def _write_complex(output: Path | None, count: int) -> None:
    """Puts the part on complex numbers at the end of the page."""
    made = complex_numerics.section(count)
    if output is not None:
        page, found, part = output.read_text().partition(f"\n{sums.HEADING}\n")
        before = page.partition(f"\n{complex_numerics.HEADING}")[0]
        output.write_text(f"{before}\n{made}" + (f"\n{sums.HEADING}\n{part}" if found else ""))


if __name__ == "__main__":
    main()
