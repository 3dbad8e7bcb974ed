"""Emission of linear algebra on GPUs: blocked Cholesky factorization and triangular solve."""
