"""Elementwise kernels on CPUs: vectorized loop nests, and random bits."""
