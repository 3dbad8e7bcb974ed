"""Loop nests over flattened arrays, and the blocked scan of a line."""
