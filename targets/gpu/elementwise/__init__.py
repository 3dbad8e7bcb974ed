"""Emission of elementwise kernels on GPUs: vectorized loops and counter-based random bits."""
