"""Scans on CPUs: prefix scans and scans with any combiner, in lanes, in panels, and in three phases."""
