"""Gather and scatter on CPUs: vector copies of rows, and combined updates without atomics."""
