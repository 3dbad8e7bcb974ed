"""Explanation: `executable.explain`: kernels, their emitters and operations, buffers, as text and as a page."""
