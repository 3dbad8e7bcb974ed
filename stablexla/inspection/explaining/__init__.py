"""Explanation of a compilation: the fate of each operation, as values, text and page."""
