"""Shared parts of lowering rules: context and registry, types and storage, loops, linalg.generic and kernels."""
