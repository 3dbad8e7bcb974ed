"""Passes that prepare StableHLO of other producers: what they mix in becomes what the lowering knows."""
