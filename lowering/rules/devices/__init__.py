"""Lowering rules of operations on several devices: collectives, send and receive, infeed and outfeed, tokens."""
