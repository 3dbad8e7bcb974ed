"""Matchers: what a kernel's function on tensors computes, as values that emitters read."""
