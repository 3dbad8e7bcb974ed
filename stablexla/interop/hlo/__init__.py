"""HLO: HLO text and protocol buffers, to and from StableHLO."""
