"""Comparison of a program with an oracle, operation by operation, down to the smallest failing program."""
