"""Kernels as JAX writes them: for each family what its users call most, at sizes that tiles divide and at others."""
