"""Judgement of results: oracles, tolerances, exact values, and known differences."""
