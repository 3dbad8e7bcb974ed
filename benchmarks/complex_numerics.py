"""Measures the largest errors of functions of complex numbers against mpmath: the part on them in docs/numerics.md.

Run by `python -m benchmarks.numerics`, with `--complex` this part alone. Without jax the columns of XLA stay empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

import stablexla as sx
from tests.numerics.complex_references import (
    BINARY,
    DTYPES,
    PRECISION,
    UNARY,
    Function,
    below,
    errors,
    exact_numbers,
    pairs,
    strata,
)

Arrays = tuple[np.ndarray, ...]
HEADING = "## Complex numbers"
_TEXT = f"""{HEADING}

Errors of functions of complex numbers against mpmath, in units in the last place of the larger part of the exact
value: what is left of a part that nearly cancels is not asked for. {{count}} points of each kind: ordinary numbers, any
exponents in either part, the smallest (denormals too) and the largest, next to the unit circle, to 1, -1, i, -i and to
poles, next to both axes (which are the branch cuts), large real parts up to the overflow. For powers and quotients:
results of any size, bases next to 1 with large exponents, whole and real exponents. Beside the worst error stands the
kind of its point.

All but sums and products are computed in f64 and rounded once, so that c64 has errors of half a unit. A power of c128
has its logarithm as a pair of f64; asin to atanh are written after Kahan. Special values (infinities, NaN, signs of
zeros, which say on which side of a branch cut a number is) are those of C99's annex G: `tests/ops/test_complex.py`.
`remainder` of complex numbers, which StableHLO's verifier lets through, is refused: no specification says what it would
mean, and the reference interpreter and XLA:CPU have none either.

{{table}}

XLA:CPU's columns leave out points with a denormal part in an argument or a result; `*` says that it gives an infinity
or NaN where the result is an ordinary number, or the reverse (such points do not count in its error).
"""


@dataclass
class Worst:
    """The largest error, the kind of number that has it, and whether something was infinite that should not be."""

    error: float = 0.0
    kind: str = ""
    special: bool = False

    def note(self, found: np.ndarray, kind: str, *, finite_only: bool) -> None:
        if finite_only:
            self.special |= bool(np.isinf(found).any())
            found = found[np.isfinite(found)]
        if found.size and found.max() >= self.error:
            self.error, self.kind = float(found.max()), kind


def compiled(function: Function) -> Callable[..., np.ndarray]:
    """The builder's function of arrays."""

    def run(*arguments: np.ndarray) -> np.ndarray:
        b = sx.XlaBuilder(function.name)
        parameters = [b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arguments)]
        return np.asarray(sx.compile(b.build(getattr(sx, function.name)(*parameters)))(*arguments))

    return run


def points(function: Function, name: str, count: int) -> Iterator[tuple[str, Arrays]]:
    """Arguments by their kind."""
    if function in BINARY:
        yield from pairs(name, count).items()
        return
    for kind, z in strata(name, count, poles=function.poles).items():
        z = below(z, function.limit)
        if z.size:
            yield kind, (z,)


def measure(function: Function, name: str, count: int, jitted: Callable[..., Any] | None) -> tuple[Worst, Worst | None]:
    """The worst of ours and of XLA's."""
    run, ours, theirs = compiled(function), Worst(), Worst() if jitted is not None else None
    for kind, arguments in points(function, name, count):
        with mpmath.workprec(PRECISION[name]):
            wanted = [function.exact(*z) for z in zip(*map(exact_numbers, arguments), strict=True)]
            result = run(*arguments)
            ours.note(errors(result, wanted, name), kind, finite_only=False)
            if jitted is None or theirs is None:
                continue
            other = np.asarray(jitted(*arguments))
            normal = np.all([~_has_denormal(a) for a in (*arguments, result)], axis=0)
            kept = [w for w, n in zip(wanted, normal, strict=True) if n]
            theirs.note(errors(other[normal], kept, name), kind, finite_only=True)
    return ours, theirs


def _has_denormal(z: np.ndarray) -> np.ndarray:
    parts = (z.real, z.imag) if np.iscomplexobj(z) else (z,)
    found: np.ndarray = np.any([(p != 0) & (np.abs(p) < np.finfo(p.dtype).tiny) for p in parts], axis=0)
    return found


def jax_functions() -> dict[str, Callable[..., Any]]:
    """XLA:CPU's functions by our names; empty without jax."""
    try:
        import jax
        from jax import lax
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    taken = [f.name for f in (*UNARY, *BINARY) if hasattr(lax, f.name) and f.name != "cbrt"]  # it is for reals alone
    return {name: jax.jit(getattr(lax, name)) for name in taken}


def section(count: int) -> str:
    """The part of the page."""
    jitted = jax_functions()
    head = ["function", "c64", "worst at", "c128", "worst at", "XLA:CPU c64", "XLA:CPU c128"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for function in (*UNARY, *BINARY):
        ours, theirs = [], []
        for name, bound in zip(DTYPES, function.ulp, strict=True):
            mine, other = measure(function, name, count, jitted.get(function.name))
            over = f"  over {bound}" if mine.error > bound else ""
            print(f"{function.name} {name}: {mine.error:.2f} ({mine.kind}){over}", flush=True)
            ours += [f"{mine.error:.2f}", mine.kind]
            theirs.append("-" if other is None else f"{other.error:.2f}{'*' if other.special else ''}")
        lines.append(f"| {' | '.join([function.name, *ours, *theirs])} |")
    return _TEXT.format(count=count, table="\n".join(lines))
