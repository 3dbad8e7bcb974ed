"""Encodings of programs as bytes: MLIR bytecode, portable artifacts, HLO, and files of `jax.export`."""
