"""Blocked and compensated summation: cascade loops, TwoSum blocks in registers and in memory."""
