"""Compilation of programs: `compile`, its cache, C libraries, specialization, and registration of kernels."""
