"""Fourier transforms: the plan of a length, its twiddle tables, and the body that emits the plan."""
