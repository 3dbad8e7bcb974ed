"""Emission of transposes on GPUs: tiles in shared memory, coalesced on both sides."""
