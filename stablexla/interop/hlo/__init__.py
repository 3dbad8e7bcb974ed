"""HLO modules, as protos and text, prepared for the conversion to StableHLO."""
