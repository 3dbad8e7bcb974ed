"""Emulation of GPU kernels on the CPU: blocks and threads as loops and fibers, inline PTX as calls."""
