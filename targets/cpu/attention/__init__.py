"""Attention on CPUs: the scores of a block of queries stay in cache between the two GEMMs."""
