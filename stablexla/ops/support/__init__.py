"""Shared parts of the builder operations: the registry, and checks of arguments."""
