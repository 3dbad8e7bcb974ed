"""Fusion passes before grouping, for GPUs: sinking of conversions and of cheap producers."""
