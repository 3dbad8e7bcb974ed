"""Executables: runs on one and several devices, memory statistics, and saved programs."""
