"""`stablexla-run` on programs with unknown extents: they come from `--shapes`, or from the inputs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.compiling.known_shapes import ArrayPattern, parameters_of, with_shapes
from stablexla.dialects.errors import ExecutionError
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.signature.signature import module_name, needs_shapes
from stablexla.tools.running.inputs import arrays_of, literal, ordered_specs
from stablexla.tools.running.on_devices import numbered

Shape = tuple[int, ...]


def add_shapes_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that `known_shapes` reads, beside those of inputs where a tool has them."""
    help_ = "a shape for each parameter whose type leaves extents open: 2x3,5"
    parser.add_argument("--shapes", metavar="LIST", help=help_)
    parser.set_defaults(inputs=None, input=[])


def known_shapes(module: ir.Module, arguments: argparse.Namespace) -> ir.Module:
    """Return the program for the given shapes; a program of known shapes unchanged.

    Raises:
        ExecutionError: no shape is given for a parameter that needs one, or one that does not fit.
    """
    if not needs_shapes(module):
        if arguments.shapes:
            raise ExecutionError("--shapes: all shapes of the program are known")
        return module
    patterns = parameters_of(module)
    open_ = [i for i, pattern in enumerate(patterns) if None in pattern.shape]
    given = _given(arguments, open_, patterns, module_name(module))
    shapes = []
    for i, pattern in enumerate(patterns):
        shape = given[i] if i in given else tuple(n or 0 for n in pattern.shape)
        if not pattern.takes(shape):
            raise ExecutionError(f"{pattern.place(i)} takes {pattern}, but its shape is given as {_text(shape)}")
        shapes.append(shape)
    made: ir.Module = run_pipeline(copy_of(module), with_shapes(Pipeline("shapes", []), module, tuple(shapes)))
    return made


def _given(
    arguments: argparse.Namespace, open_: Sequence[int], patterns: Sequence[ArrayPattern], name: str
) -> dict[int, Shape]:
    """Return shapes by the numbers of parameters."""
    if arguments.shapes:
        shapes = [_shape(word) for word in arguments.shapes.split(",")]
        if len(shapes) != len(open_):
            listed = ", ".join(str(patterns[i]) for i in open_)
            raise ExecutionError(f"--shapes: {len(shapes)} are given for {len(open_)} parameters: {listed}")
        return dict(zip(open_, shapes, strict=True))
    if arguments.inputs:
        arrays = arrays_of(Path(numbered(str(arguments.inputs), 0)), [pattern.name for pattern in patterns])
        return {i: array.shape for i, array in enumerate(arrays)}
    specs = ordered_specs([numbered(spec, 0) for spec in arguments.input], name, [pattern.name for pattern in patterns])
    found = {i: _shape_of_input(spec) for i, spec in enumerate(specs) if spec is not None}
    for i in open_:
        if found.get(i) is None:
            raise ExecutionError(
                f"{patterns[i].place(i)} takes {patterns[i]}: its shape is not known",
                hint=f"--shapes {','.join(_text([n or 2 for n in patterns[j].shape]) for j in open_)}",
            )
    return {i: shape for i, shape in found.items() if shape is not None and i in open_}


def _shape_of_input(spec: str) -> Shape | None:
    """Return the shape of the array in a file or of a list of numbers."""
    if spec.endswith(".npy"):
        try:
            return tuple(np.load(Path(spec), allow_pickle=False, mmap_mode="r").shape)
        except Exception:  # errors are raised where the file is read
            return None
    try:
        return tuple(np.shape(literal(spec)))
    except (ValueError, OverflowError):
        return None


def _shape(word: str) -> Shape:
    try:
        shape = tuple(int(n) for n in word.split("x")) if word else ()
    except ValueError:
        shape = (-1,)
    if any(n < 0 for n in shape):
        raise ExecutionError(f"--shapes: {word!r} is no shape", hint="2x3,5")
    return shape


def _text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
