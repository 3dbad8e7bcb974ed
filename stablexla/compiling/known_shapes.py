"""Programs with unknown extents, and the step that gives their parameters shapes.

targets/stablehlo/imports/shapes/refinement.py finds the extents inside the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.dynamic_sizes import is_unknown
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.types import is_token
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.targets.runtime.arguments import parameter_place
from stablexla.targets.signature.signature import argument_name, body_of, element_type_of
from stablexla.targets.stablehlo.imports.shapes.refinement import SHAPES, refining_step

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ArrayPattern:
    """A parameter or a result some of whose extents are None, not known yet."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    name: str
    element: str
    type: str
    """MLIR's."""

    @staticmethod
    def of(type_: Any, name: str = "") -> ArrayPattern:
        """Return the pattern of a StableHLO type."""
        element = element_type_of(type_)
        extents = tuple(None if type_.is_dynamic_dim(i) else int(n) for i, n in enumerate(type_.shape))
        return ArrayPattern(element.dtype, extents, name, str(element), str(type_))

    def takes(self, shape: Sequence[int]) -> bool:
        """Return whether an array of that shape fits."""
        return len(shape) == len(self.shape) and all(n in (None, m) for n, m in zip(self.shape, shape, strict=True))

    def place(self, number: int) -> str:
        """Return what errors call a parameter of that number."""
        return parameter_place(number, self.name)

    def __str__(self) -> str:
        return f"{self.element}[{','.join('?' if n is None else str(n) for n in self.shape)}]"


def parameters_of(module: ir.Module) -> tuple[ArrayPattern, ...]:
    """Return the parameters of `main` that are arrays, as tokens are not."""
    given = body_of(module).arguments
    return tuple(ArrayPattern.of(a.type, argument_name(a)) for a in given if not is_token(a.type))


def with_shapes(pipeline: Pipeline, module: ir.Module, shapes: Shapes) -> Pipeline:
    """Return the pipeline behind the step that gives the parameters of a module these shapes; tokens have none."""
    rest = iter(shapes)
    types = (a.type for a in body_of(module).arguments)
    step = refining_step(",".join(str(t) if is_token(t) else _type_text(t, next(rest)) for t in types))
    return Pipeline(pipeline.name, [step, *pipeline.steps], pipeline.rules)


def with_known_shapes(source: ir.Module, pipeline: Pipeline) -> ir.Module | None:
    """Return the program after the step `shapes`; None for a pipeline that does not begin with it.

    Raises:
        VerificationError: the shapes do not fit the program.
        ExecutionError: a shape assertion does not hold.
    """
    if pipeline.names[:1] != (SHAPES,):
        return None
    made: ir.Module = run_pipeline(copy_of(source, here=True), pipeline.up_to(SHAPES), holds=True)
    return made


def _type_text(type_: Any, shape: Sequence[int]) -> str:
    """Return the type of an array of that shape, for a type with unknown extents."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{type_.element_type}>" if is_unknown(type_) else str(type_)
