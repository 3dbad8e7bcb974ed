"""Reductions on CPUs: row passes, column reductions, partial sums, argmax and argmin."""
