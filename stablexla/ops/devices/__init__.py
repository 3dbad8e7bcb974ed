"""Builder operations on several devices: collectives, channels, infeed and outfeed, manual partitioning."""
