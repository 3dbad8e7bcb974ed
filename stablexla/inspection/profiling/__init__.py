"""Profiles of executables: time and cost model of each kernel, tables and traces."""
