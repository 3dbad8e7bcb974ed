"""How near scans, scatters, statistics and three whole programs are to f64, beside XLA:CPU: a part of docs/numerics.md.

    python -m benchmarks.beside_xla [--output docs/numerics.md]

Scans, statistics and scatters are in units of the roundoff 2**-24 of each exact element, the worst one over three kinds
of numbers, none of which is negative. Programs have no single worst element: of each the geometric mean over several
arguments is taken of the largest relative error.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import stablexla as sx

Array = np.ndarray[Any, np.dtype[Any]]
UNIT = 2.0**-24
BEGIN, END = "<!-- made by benchmarks/beside_xla.py -->", "<!-- end of what benchmarks/beside_xla.py makes -->"
COUNT = 1 << 20
SEEDS = 24


def both(function: Callable[..., Any], exact: Array, *arguments: Array) -> list[float]:
    """How many units the worst element is off, here and in XLA."""
    lowered = jax.jit(function).lower(*arguments)
    results = sx.compile(lowered.as_text())(*arguments), lowered.compile()(*arguments)
    return [float(np.abs((np.asarray(a) - exact) / np.where(exact == 0, 1, exact)).max() / UNIT) for a in results]


def numbers(shape: tuple[int, ...]) -> list[Array]:
    """Of one size, of one sign, and all equal, so that every addition rounds alike."""
    rng = np.random.default_rng(0)
    return [a.astype(np.float32) for a in (rng.random(shape), rng.normal(size=shape) + 10, np.full(shape, 0.1))]


def _cumlogsumexp(x: Array, axis: int) -> Array:
    return np.logaddexp.accumulate(x, axis)


def _logsumexp(x: Array, axis: int) -> Array:
    top = x.max(axis, keepdims=True)
    made: Array = np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)
    return made


def _recurrence(x: Any, axis: int) -> Any:
    def step(before: Any, after: Any) -> Any:
        return before[0] * after[0], before[1] * after[0] + after[1]

    return jax.lax.associative_scan(step, (jnp.ones_like(x), x), axis=axis)[1]


# name: the function of JAX, numpy's in f64
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Array]]] = {
    "mean": (jnp.mean, np.mean),
    "variance": (jnp.var, np.var),
    "norm": (lambda x, axis: jnp.linalg.norm(x, axis=axis), lambda x, axis: np.linalg.norm(x, axis=axis)),
    "logsumexp": (lambda x, axis: jax.nn.logsumexp(x, axis), _logsumexp),
    "cumsum": (jnp.cumsum, np.cumsum),
    "cumlogsumexp": (jax.lax.cumlogsumexp, _cumlogsumexp),
    "y = a y + x, by an associative scan": (_recurrence, np.cumsum),
}
SHAPES = {"one line": ((COUNT,), 0), "16 lines": ((16, COUNT // 16), 1), "64 columns": ((COUNT // 64, 64), 0)}


def of_functions() -> list[list[str]]:
    """A row for each function and shape; all with n numbers in all."""
    rows = []
    for name, (function, exact) in FUNCTIONS.items():
        for kind, (shape, axis) in SHAPES.items():
            worst = np.zeros(2)
            for x in numbers(shape):
                wide = exact(x.astype(np.float64), axis=axis)
                if name == "variance" and not np.ptp(x):
                    continue  # there is nothing but what the mean is off by
                worst = np.maximum(worst, both(partial(function, axis=axis), wide, x))
            rows.append([name, kind, *(f"{w:.1f}" for w in worst)])
    return rows


def of_scatters() -> list[list[str]]:
    """A row for each number of updates and of places."""
    rows = []
    for count, places in ((1 << 10, 1), (1 << 16, 16), (1 << 20, 1), (1 << 20, 1024)):
        at = np.random.default_rng(1).integers(0, places, count).astype(np.int32)
        worst = np.zeros(2)
        for updates in numbers((count,)):
            exact = np.bincount(at, updates.astype(np.float64), places)
            zeros = np.zeros(places, np.float32)
            worst = np.maximum(worst, both(lambda x, at, v: x.at[at].add(v), exact, zeros, at, updates))
        rows.append([f"{count:,}", f"{places:,}", *(f"{w:.1f}" for w in worst)])
    return rows


# ---- programs --------------------------------------------------------------------------------------------------------


def gaussian_process(parameters: Any, x: Any, y: Any) -> Any:
    """The gradient of the marginal likelihood by length, amplitude and noise, through a Cholesky factor."""

    def loss(parameters: Any) -> Any:
        length, amplitude, noise = jnp.exp(parameters)
        apart = x[:, None, :] - x[None, :, :]
        near = amplitude**2 * jnp.exp(-0.5 * (apart**2).sum(-1) / length**2)
        factor = jnp.linalg.cholesky(near + (noise**2 + 1e-6) * jnp.eye(len(x), dtype=x.dtype))
        return 0.5 * y @ jax.scipy.linalg.cho_solve((factor, True), y) + jnp.log(jnp.diag(factor)).sum()

    return jax.grad(loss)(parameters)


def least_squares(start: Any, x: Any, y: Any) -> Any:
    """An exponential fitted by Levenberg-Marquardt."""
    import optimistix

    solver = optimistix.LevenbergMarquardt(rtol=1e-4, atol=1e-4)

    def off(p: Any, xy: Any) -> Any:
        return p[0] * jnp.exp(-p[1] * xy[0]) - xy[1]

    return optimistix.least_squares(off, solver, start, args=(x, y), throw=False, max_steps=64).value


def product(x: Any) -> Any:
    """A cumulative product of complex numbers."""
    return jnp.cumprod(x)


def _process(size: int, seed: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(size, 2))
    y = np.sin(x.sum(1)) + 0.1 * rng.normal(size=size)
    return tuple(a.astype(np.float32) for a in (np.array([0.1, 0.2, -1.5]), x, y))


def _curve(size: int, seed: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(0, 4, size))
    y = 2.5 * np.exp(-0.7 * x) + 0.05 * rng.normal(size=size)
    return tuple(a.astype(np.float32) for a in (np.ones(2), x, y))


def _factors(size: int, seed: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    return ((np.exp(2j * np.pi * rng.random(size)) * np.exp(rng.normal(size=size) / 10)).astype(np.complex64),)


# name: the program, its arguments for a seed, and of what size
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[Array, ...]], int]] = {
    "gradient of a Gaussian process, 64 points": (gaussian_process, _process, 64),
    "gradient of a Gaussian process, 200 points": (gaussian_process, _process, 200),
    "Levenberg-Marquardt (optimistix), 12 points": (least_squares, _curve, 12),
    "Levenberg-Marquardt (optimistix), 200 points": (least_squares, _curve, 200),
    "cumulative product of 10,000 c64": (product, _factors, 10_000),
}


def geometric_means(
    program: Callable[..., Any],
    arguments: Callable[[int, int], tuple[Array, ...]],
    size: int,
    seeds: int = SEEDS,
) -> tuple[float, float]:
    """Of the largest relative error of each seed's results, here and of XLA."""
    lowered = jax.jit(program).lower(*arguments(size, 0))
    here, there, found = sx.compile(lowered.as_text()), lowered.compile(), []
    with jax.enable_x64(True):
        exact = jax.jit(program)
        for seed in range(seeds):
            given = arguments(size, seed)
            wide = np.asarray(exact(*(a.astype(np.result_type(a, np.float64)) for a in given)))
            found.append([np.abs((np.asarray(a) - wide) / wide).max() for a in (here(*given), there(*given))])
    ours, theirs = np.exp(np.log(np.array(found) + 1e-12).mean(0))
    return float(ours), float(theirs)


def of_programs() -> list[list[str]]:
    """A row for each program."""
    return [[name, *(f"{e:.1e}" for e in geometric_means(*program))] for name, program in PROGRAMS.items()]


# ---- the page --------------------------------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page() -> str:
    """The part of the page."""
    functions = table(["", f"{COUNT:,} numbers in", "stablexla", "XLA:CPU"], of_functions())
    scatters = table(["updates", "places", "stablexla", "XLA:CPU"], of_scatters())
    programs = table(["", "stablexla", "XLA:CPU"], of_programs())
    return _TEXT.format(functions=functions, scatters=scatters, programs=programs, seeds=SEEDS)


_TEXT = """## Scans, statistics, scatters and programs beside XLA

Made by `python -m benchmarks.beside_xla`, in f32, against f64; held by `tests/numerics/test_long_scans.py`.

Long scans are made in blocks of blocks, so that what precedes an element is never the end of one running sum; products
of c64 are carried in c128 and rounded once. The worst error of an element, in units of the roundoff 2**-24 of it:

{functions}

Updates that a scatter adds to one place are added in their order, here, on GPUs and in XLA, so that the bits are the
same in every run: errors grow with their number. The worst error of an element, in the same units:

{scatters}

Whole programs: the geometric mean over {seeds} sets of arguments of the largest relative error. For one set either side
may be several times as near as the other: a Gaussian process multiplies the rounding of its matrix by that matrix's
condition, and a search ends where its tolerance lets it.

{programs}
"""


def main() -> None:
    """Prints the part, or puts it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    output = parser.parse_args().output
    made = f"{BEGIN}\n\n{page()}\n{END}\n"
    if output is None:
        print(made)
        return
    before, _, rest = output.read_text().partition(BEGIN)
    output.write_text(f"{before.rstrip()}\n\n{made}{rest.partition(END)[2].lstrip()}")


if __name__ == "__main__":
    main()
