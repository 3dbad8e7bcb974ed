"""Kernels for composite operations: registered while Python runs, and compared with the decompositions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.compiling.compiler import compile
from stablexla.dialects.composites import REGISTERED, CompositeKernel, Key
from stablexla.dialects.errors import CompileError
from stablexla.dialects.shapes import Shape
from stablexla.executable.executable import Executable
from stablexla.interop.load import Program
from stablexla.lowering.rules.calls.composites import call_of_host
from stablexla.lowering.support.types import TensorType
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target
from stablexla.tools.running.inputs import random_array

Array = npt.NDArray[Any]
Accepts = Callable[[Sequence[Shape], Mapping[str, Any]], bool]

_DECOMPOSE = "stablexla-decompose-composites"


def register_composite_kernel(
    name: str,
    version: int,
    function: Callable[..., Any],
    *,
    accepts: Accepts | None = None,
    lowering: bool = False,
    target: str | None = None,
) -> None:
    """Register `function` for a composite operation of this name and version, instead of its decomposition.

    Programs that are compiled from now on use it; one that was registered before is replaced. `check_composite_kernel`
    compares the two ways.

    Args:
        name: the composite's name, as "my.gelu".
        version: of its meaning.
        function: a Python function that is called with a read-only numpy array for each operand and the composite's
            attributes by their names, and returns an array, or a tuple of them.
        accepts: says for given shapes of the operands and attributes whether `function` is used; always, without it.
        lowering: `function` is a lowering rule instead, which writes upstream MLIR: it is called with a
            `LoweringContext` and the lowered operands, as those of the folder lowering/ are.
        target: "cpu" or "gpu", of whose programs alone it is a part; it then goes before one that is for both. A
            function that is called runs on the host, so that only lowering rules are there for "gpu" alone.

    Raises:
        TypeError: the name is no text, the version no number, or the function not callable.
        ValueError: there is no such target, or a function that is called is meant for "gpu" alone.

    Source: `CompositeCall` of XLA's operation semantics.

    >>> def swish(x, beta):
    ...     return x / (1 + np.exp(-beta * x))
    >>> sx.register_composite_kernel("doc.swish", 1, swish)
    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[3])
    >>> y = sx.composite_call(x, "doc.swish", {"beta": 1}, lambda x: x * sx.logistic(x), version=1)
    >>> sx.compile(x.builder.build(y)).composites
    {'doc.swish v1': 'kernel'}
    """
    if not isinstance(name, str) or isinstance(version, bool) or not isinstance(version, int):
        raise TypeError(f"a composite has a name and the number of a version, not {name!r} and {version!r}")
    if not callable(function):
        raise TypeError(f"{function!r} is no function")
    if target not in (None, "cpu", "gpu"):
        raise ValueError(f"a composite's kernel is for the target 'cpu' or 'gpu', not {target!r}")
    if target == "gpu" and not lowering:
        raise ValueError("a function that is called runs on the host: for 'gpu' alone there are lowering rules")
    rule = function if lowering else partial(call_of_host, name, version)
    made = CompositeKernel(name, accepts or accept_all, rule, frozenset([version]), function)
    REGISTERED[_key(name, version, target)] = made


def accept_all(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> bool:
    """Accept everything: the default of `accepts`."""
    return True


def unregister_composite_kernel(name: str, version: int, *, target: str | None = None) -> None:
    """Remove the kernel of `register_composite_kernel` for one target or all; without one, do nothing."""
    REGISTERED.pop(_key(name, version, target), None)


def _key(name: str, version: int, target: str | None) -> Key:
    return (name, version) if target is None else (name, version, target)


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
