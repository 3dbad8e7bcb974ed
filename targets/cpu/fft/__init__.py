"""Fourier transforms on CPUs: Stockham passes, Bluestein, Rader, real-input transforms."""
