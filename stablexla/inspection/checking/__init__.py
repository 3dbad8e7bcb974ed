"""Checks of a run: the first operation that makes a NaN, an infinity, or something else that was asked for."""
