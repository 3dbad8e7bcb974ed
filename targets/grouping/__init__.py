"""Passes from tensor-level IR to kernels that all targets share: cleanup, grouping (fusion), outlining."""
