"""Emission of reductions on GPUs: row passes by warps and blocks, column reductions, partial sums."""
