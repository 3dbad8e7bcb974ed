"""Passes on StableHLO modules before the lowering: import, inlining, partitioning, scans, computations as loops."""
