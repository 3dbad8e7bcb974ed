"""Threads, warps and blocks of GPU kernels: launch configurations, grid-stride loops, reductions."""
