"""Installed builds of MLIR and StableHLO: version checks, and loading without library conflicts."""
