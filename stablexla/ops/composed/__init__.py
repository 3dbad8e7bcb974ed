"""Composed operations: operations that emit several StableHLO operations or a composite that can be decomposed."""
