"""Cholesky factorization and triangular solve on CPUs: one small matrix per lane, larger ones by LAPACK."""
