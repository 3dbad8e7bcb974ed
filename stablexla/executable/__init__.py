"""Executables: compiled programs: calls, arrays on devices, saving and loading, replicas."""
