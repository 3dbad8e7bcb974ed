"""Imports every family of lowering rules, so that each is in the registry."""

from stablexla.lowering import complex_math, composites, contraction, control, conversion, elementwise, reduction, shape

FAMILIES = (elementwise, conversion, complex_math, composites, shape, contraction, reduction, control)
