"""Error bounds: how far results may differ between right implementations, by operation, element type and sizes."""
