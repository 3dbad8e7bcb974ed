"""Expansion to StableHLO loops of operations whose computations hold more than scalar arithmetic."""
