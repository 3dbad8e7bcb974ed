"""Data movement on CPUs: transposes, and arrays assembled by pad, concatenate, stack and update-slice."""
