"""Emission of pooling and its gradient on GPUs."""
