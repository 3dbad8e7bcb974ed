"""Sorts of keys on CPUs: bitonic networks in lanes, and vectorized merges along the merge path."""
