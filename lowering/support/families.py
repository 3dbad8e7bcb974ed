"""Imports every family of lowering rules, so that each is in the registry."""

from stablexla.lowering.math.complex import arithmetic as complex_math  # noqa: F401
from stablexla.lowering.rules import (  # noqa: F401
    associative_scan,
    contraction,
    control,
    conversion,
    convolution,
    elementwise,
    fft,
    indexing,
    linear_algebra,
    normalization,
    order,
    random,
    reduction,
    scatter,
    shape,
    window,
)
from stablexla.lowering.rules.calls import composites, custom_call, jax_callbacks, jax_calls, lapack, tridiagonal  # noqa: F401
from stablexla.lowering.rules.devices import collectives, effects  # noqa: F401

FAMILIES = (
    elementwise,
    conversion,
    complex_math,
    composites,
    shape,
    indexing,
    scatter,
    contraction,
    convolution,
    linear_algebra,
    lapack,
    tridiagonal,
    jax_calls,
    fft,
    order,
    random,
    reduction,
    normalization,
    window,
    control,
    custom_call,
    effects,
    collectives,
)
