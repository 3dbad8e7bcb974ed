"""Contractions on CPUs: packed panels, micro-kernels, skinny products, dot-product instructions, epilogues."""
