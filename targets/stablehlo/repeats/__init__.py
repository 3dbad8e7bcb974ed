"""Equal parts of a program, found by structure and compiled once."""
