"""Kernel bodies of the larger operations, on tensors: FFT, random bits, scans, sorts and window reductions."""
