"""Emission of gathers and deterministic scatters on GPUs."""
