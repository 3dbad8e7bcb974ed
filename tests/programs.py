"""Running a program and holding its results against oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.cpu.pipeline import cpu_pipeline
from stablexla.targets.pipeline.knobs import knobs
from tests import oracles
from tests.comparison import assert_same

ORACLES: dict[str, Callable[[str, Sequence[Any]], list[np.ndarray]]] = {
    "interpreter": oracles.interpreter,
    "xla": oracles.xla,
}


TARGET = "cpu"
"""The target for which `check` compiles programs: `pytest --target upstream`."""


def general_only() -> sx.CompileOptions:
    """Options that send every kernel through the general path: linalg and upstream's loops."""
    guard = f"{{guard={knobs.guard}}}" if knobs.guard else ""
    steps = f"stablexla-emit-kernels{{general-only=true}},stablexla-assign-buffers{guard}"
    return sx.CompileOptions(pipeline=cpu_pipeline().with_step("buffers", steps))


def check(
    program: str | sx.XlaComputation,
    args: Sequence[Any] = (),
    *,
    against: Sequence[str] = ("interpreter", "xla"),
    expected: Sequence[Any] | None = None,
    ulp: float = 0,
    scale: float = 0,
    options: sx.CompileOptions | None = None,
) -> list[np.ndarray]:
    """Runs the program on stablexla and compares every result with the named oracles, and with `expected`.

    Returns:
        What stablexla gave.
    """
    text = str(program)
    try:
        executable = sx.compile(program, options=options, target=TARGET if options is None else "cpu")
    except sx.UnsupportedError as error:
        if TARGET != "cpu":
            pytest.skip(str(error))
        raise
    results = executable.execute(list(args))
    references = {name: ORACLES[name](text, args) for name in against}
    if expected is not None:
        references["expected"] = [np.asarray(e) for e in expected]
    for name, reference in references.items():
        assert len(results) == len(reference), name
        for i, (actual, wanted) in enumerate(zip(results, reference, strict=True)):
            try:
                assert_same(actual, wanted, ulp=ulp, scale=scale)
            except AssertionError as error:
                raise AssertionError(f"result {i} against {name}: {error}") from None
    return results


def run(
    make: Callable[..., Any], *args: Any, options: sx.CompileOptions | None = None, **checks: Any
) -> list[np.ndarray]:
    """Builds `make(builder, *parameters)` for the arguments' shapes and checks it."""
    b = sx.XlaBuilder("test")
    arrays = [np.asarray(a) for a in args]
    parameters = [b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arrays)]
    root = make(b, *parameters)
    if isinstance(root, list | tuple):
        root = sx.tuple(root)
    return check(b.build(root), arrays, options=options, **checks)
