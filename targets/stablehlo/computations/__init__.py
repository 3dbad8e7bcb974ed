"""Computations that hold more than arithmetic on scalars: the operations that apply them become loops in StableHLO."""
