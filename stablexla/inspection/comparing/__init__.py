"""Comparison of two runs of a program: searches for the first wrong operation, bisection, reports."""
