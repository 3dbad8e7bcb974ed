"""Checks of values: programs that tell the first operation that made a NaN or an infinity."""
