"""Kernels without a body: calls of C functions, of the host's Python functions, of LAPACK, and collectives."""
