"""Running a program on several devices and holding every device's results against the model and the oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stablexla as sx
from tests.comparison import assert_same
from tests.distributed import xla_oracle
from tests.distributed.model import Grid

ORACLES = {"xla": xla_oracle.xla, "interpreter": xla_oracle.interpreter}
BOTH = ("interpreter", "xla")


def each(grid: Grid, make: Callable[[int], Any]) -> list[Any]:
    """`make(d)` for each device."""
    return [make(d) for d in range(grid.size)]


def numbered(grid: Grid, shape: tuple[int, ...], dtype: Any = np.float32) -> list[np.ndarray]:
    """Arrays whose elements all differ, on one device and between them: small whole numbers."""
    size = int(np.prod(shape))
    return each(grid, lambda d: (np.arange(size).reshape(shape) + d * size + 1).astype(dtype))


def build(make: Callable[..., Any], arguments: Sequence[np.ndarray]) -> sx.XlaComputation:
    """`make(builder, *parameters)` with the shapes of one device's arguments."""
    b = sx.XlaBuilder("test")
    root = make(b, *(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arguments)))
    return b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)


def check(
    program: str | sx.XlaComputation,
    grid: Grid,
    arguments: Sequence[Sequence[Any]],
    expected: Sequence[Sequence[Any]] | None = None,
    *,
    against: Sequence[str] = BOTH,
) -> list[list[np.ndarray]]:
    """Runs the program on all devices of the grid.

    Args:
        program: for one device.
        grid: how many replicas and partitions.
        arguments: for each device, those of `main`.
        expected: for each result of `main`, the values on each device, as the model gives them; exact.
        against: the oracles to ask, which must agree bit for bit.
    """
    given = [[np.asarray(a) for a in of_one] for of_one in arguments]
    wanted = {name: ORACLES[name](str(program), given, grid.replicas, grid.partitions) for name in against}
    if expected is not None:
        by_device = [list(of_one) for of_one in zip(*expected, strict=True)]
        for name, found in wanted.items():
            same(found, by_device, f"{name} and the model")
        wanted["the model"] = by_device
    executable = sx.compile(program, num_replicas=grid.replicas, num_partitions=grid.partitions)
    results = executable.execute_replicated(given)
    for name, of_all in wanted.items():
        same(results, of_all, f"stablexla and {name}")
    return results


def run(
    make: Callable[..., Any],
    grid: Grid,
    *operands: Sequence[Any],
    expected: Sequence[Sequence[Any]] | None = None,
    against: Sequence[str] = BOTH,
) -> list[list[np.ndarray]]:
    """Builds `make(builder, *parameters)` and checks it; each of `operands` has one array for each device."""
    arguments = [[np.asarray(a) for a in of_one] for of_one in zip(*operands, strict=True)] or each(grid, lambda d: [])
    return check(build(make, arguments[0]), grid, arguments, expected, against=against)


def same(results: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]], who: str) -> None:
    """The same arrays bit for bit; any NaN is as good as another."""
    assert len(results) == len(wanted), who
    for d, (of_one, right) in enumerate(zip(results, wanted, strict=True)):
        assert len(of_one) == len(right), who
        for i, (x, y) in enumerate(zip(of_one, right, strict=True)):
            try:
                assert_same(x, y)
            except AssertionError as error:
                raise AssertionError(f"{who}: result {i} on device {d}: {error}") from None
