"""Attributes of operations as plain Python values, and the checks of arguments that become attributes."""
