"""Lowering rules of custom calls and composites: LAPACK, JAX's own targets, CHLO functions, calls of the host."""
