"""Programs written with libraries on top of JAX: models, optimizers, solvers, samplers. Small, and run as they are."""

from tests.interop.proof.programs import (  # noqa: F401  (they register programs)
    equinox_models,
    flax_models,
    nnx_models,
    optimizers,
    samplers,
    solvers,
    transformations,
)
from tests.interop.proof.programs.registry import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
