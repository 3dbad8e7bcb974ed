"""What is common to all targets on the way from tensor-level IR to kernels: cleaning up, grouping, outlining."""
