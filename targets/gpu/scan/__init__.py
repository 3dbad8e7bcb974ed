"""Emission of scans (prefix sums) on GPUs: warp scans by shuffles, lines in chunks, strided lines."""
