"""Builder operations composed of several StableHLO operations."""
