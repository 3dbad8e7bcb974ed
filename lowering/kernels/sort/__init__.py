"""Sorting of rows: radix, merge and rank sort, top-k selection, and the analysis of comparators."""
