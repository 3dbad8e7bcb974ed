"""Kernels of composite operations, compared with the decompositions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.compiling.compiler import compile
from stablexla.dialects.errors import CompileError
from stablexla.dialects.shapes import Shape
from stablexla.executable.executable import Executable
from stablexla.interop.loading import Program
from stablexla.lowering.support.types import TensorType
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target

Array = npt.NDArray[Any]

_DECOMPOSE = "stablexla-decompose-composites"


def check_composite_kernel(
    program: Program,
    arguments: Sequence[object] | None = None,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    seed: int = 0,
    options: CompileOptions | None = None,
    target: str = "cpu",
) -> dict[str, str]:
    """Compare a program's results with the kernels of its composites and with their decompositions.

    Args:
        program: what `sx.compile` takes, with a composite operation in it that has a kernel.
        arguments: for the program; random arrays, without them.
        rtol: how far a result may be from the decomposition's, in parts of that,
        atol: and how far in any case.
        seed: of the random arrays.
        options: how to compile.
        target: the target's name.

    Returns:
        `Executable.composites`: which way each composite went.

    Raises:
        AssertionError: the results differ, or no composite has a kernel.

    >>> sx.register_composite_kernel("doc.twice", 0, lambda x: x * 2)
    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[3])
    >>> y = sx.composite_call(x, "doc.twice", {}, lambda x: x + x)
    >>> sx.check_composite_kernel(x.builder.build(y))
    {'doc.twice v0': 'kernel'}
    """
    options = options or CompileOptions()
    executable = compile(program, target=target, options=options)
    ways = executable.composites
    if not any("kernel" in way for way in ways.values()):
        raise AssertionError(f"{executable.name}: no composite has a kernel; they went: {ways}")
    decomposed = compile(program, target=target, options=_decomposing(options, target))
    given = _random(executable, seed) if arguments is None else arguments
    results = zip(executable.execute(given), decomposed.execute(given), strict=True)
    for number, (actual, wanted) in enumerate(results):
        _compare(f"{executable.name}: result {number}", actual, wanted, rtol, atol)
    return ways


def _decomposing(options: CompileOptions, target: str) -> CompileOptions:
    """Return the options with a pipeline that decomposes every composite."""
    pipeline = options.pipeline or find_target(target).pipeline(options)
    for step in pipeline:
        if _DECOMPOSE in step.passes:
            passes = re.sub(_DECOMPOSE + r"(\{[^}]*\})?", _DECOMPOSE + "{all=true}", step.passes)
            return replace(options, pipeline=pipeline.with_step(step.name, passes))
    raise CompileError(f"the pipeline has no {_DECOMPOSE}, so that nothing can be compared")


def _random(executable: Executable, seed: int) -> list[Array]:
    shapes = [Shape(spec.dtype, spec.shape) for spec in executable.parameters]
    return [random_array(TensorType(s.element_type, s.dimensions), seed + i) for i, s in enumerate(shapes)]


def _compare(what: str, actual: Array, wanted: Array, rtol: float, atol: float) -> None:
    """Compare in a type that holds the elements of both; NaN equals NaN."""
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    message = f"{what}: kernel and decomposition differ"
    np.testing.assert_allclose(actual.astype(wide), wanted.astype(wide), rtol=rtol, atol=atol, err_msg=message)


def random_array(type_: TensorType, seed: int) -> Array:
    """Return random numbers that suit most programs: normal floats, integers between -10 and 10, either pred."""
    element, rng = type_.element, np.random.default_rng(seed)
    if element.is_pred:
        return rng.integers(0, 2, type_.shape).astype(bool)
    if element.is_integer:
        low = -min(10, 1 << (element.bits - 1)) if element.is_signed else 0
        high = min(10, (1 << (element.bits - element.is_signed)) - 1)
        return rng.integers(low, high, type_.shape, endpoint=True).astype(element.dtype)
    numbers = rng.standard_normal(type_.shape)
    if element.is_complex:
        return (numbers + 1j * rng.standard_normal(type_.shape)).astype(element.dtype)
    return np.asarray(numbers).astype(element.dtype)
