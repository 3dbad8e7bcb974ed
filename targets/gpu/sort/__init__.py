"""Emission of stable merge sorts on GPUs: tiles in shared memory, merge path between runs."""
