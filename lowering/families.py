"""Imports every family of lowering rules, so that each is in the registry."""

from stablexla.lowering import complex_math, contraction, control, conversion, elementwise, reduction, shape

FAMILIES = (elementwise, conversion, complex_math, shape, contraction, reduction, control)
