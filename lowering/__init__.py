"""StableHLO to tensor-level IR: a registry of small rules, one file per family of operations."""
