"""Emission of FFTs on GPUs: ping-pong passes in shared memory, a launch for each dimension."""
