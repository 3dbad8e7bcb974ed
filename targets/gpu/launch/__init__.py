"""Launches of GPU programs: device buffers and scalars of `main`, its host code, and the loader."""
