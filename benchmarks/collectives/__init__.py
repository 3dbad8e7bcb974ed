"""Collectives of many devices beside those of others; run as `python -m benchmarks.collectives`."""
