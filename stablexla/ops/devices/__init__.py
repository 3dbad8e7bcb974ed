"""Operations of several devices: collectives, messages, infeed and outfeed, manual partitioning."""
